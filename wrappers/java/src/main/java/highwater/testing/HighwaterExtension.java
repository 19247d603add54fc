package highwater.testing;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Gives each test that has a parameter {@link TestBroker} a broker of its own, which ends with the test. A parameter of
 * {@code @BeforeAll} or of a constructor of a shared instance gets a broker of the class, which all its tests share. Use it by
 * {@code @ExtendWith(HighwaterExtension.class)}, or as a field with {@code @RegisterExtension} and options.
 */
public final class HighwaterExtension implements ParameterResolver {
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
                .getOrComputeIfAbsent(TestBroker.class, key -> new StoredBroker(options.start()), StoredBroker.class)
                .broker;
    }

    /** A broker that ends with the context of its test or class. */
    private static final class StoredBroker implements ExtensionContext.Store.CloseableResource {
        private final TestBroker broker;

        StoredBroker(TestBroker broker) {
            this.broker = broker;
        }

        @Override
        public void close() {
            broker.close();
        }
    }
}
