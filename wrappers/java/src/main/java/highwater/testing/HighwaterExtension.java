package highwater.testing;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Gives each test that has a parameter {@link TestBroker} a broker of its own, which ends with the test. Use it by
 * {@code @ExtendWith(HighwaterExtension.class)}, or as a field with {@code @RegisterExtension} and options.
 */
public final class HighwaterExtension implements ParameterResolver, AfterEachCallback {
    private static final ExtensionContext.Namespace NAMESPACE =
            ExtensionContext.Namespace.create(HighwaterExtension.class);

    private final TestBroker.Options options;

    /** A broker without topics and rules. */
    public HighwaterExtension() {
        this(new TestBroker.Options());
    }

    /** A broker with these options. */
    public HighwaterExtension(TestBroker.Options options) {
        this.options = options;
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext test) {
        return parameter.getParameter().getType() == TestBroker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext test) {
        return test.getStore(NAMESPACE)
                .getOrComputeIfAbsent(TestBroker.class, key -> options.start(), TestBroker.class);
    }

    @Override
    public void afterEach(ExtensionContext test) {
        TestBroker broker = test.getStore(NAMESPACE).remove(TestBroker.class, TestBroker.class);
        if (broker != null) {
            broker.close();
        }
    }
}
