package highwater.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.function.Executable;

/** The behaviours of ../conformance.json, each a test, with Kafka's own client. */
class ConformanceTest {
    @RegisterExtension
    final HighwaterExtension extension = new HighwaterExtension(new TestBroker.Options().topics("extension:2"));

    private static final Map<String, Executable> CHECKS = Map.ofEntries(
            Map.entry("serves", ConformanceTest::serves),
            Map.entry("fields", ConformanceTest::fields),
            Map.entry("finds-binary", ConformanceTest::findsBinary),
            Map.entry("stops", ConformanceTest::stops),
            Map.entry("refused-start", ConformanceTest::refusedStart),
            Map.entry("settings", ConformanceTest::settings),
            Map.entry("sets-fault", ConformanceTest::setsFault),
            Map.entry("removes-fault", ConformanceTest::removesFault),
            Map.entry("refuses-fault", ConformanceTest::refusesFault),
            Map.entry("faults-at-start", ConformanceTest::faultsAtStart),
            Map.entry("two-at-once", ConformanceTest::twoAtOnce),
            Map.entry("snapshots", ConformanceTest::snapshots),
            Map.entry("refuses-snapshot", ConformanceTest::refusesSnapshot));

    @TestFactory
    Stream<DynamicTest> conformance() throws Exception {
        var ids = Pattern.compile("\"id\": \"([^\"]+)\"").matcher(Files.readString(Path.of("../conformance.json")));
        var found = ids.results().map(id -> id.group(1)).toList();
        assertFalse(found.isEmpty());
        return found.stream().map(id -> {
            assertNotNull(CHECKS.get(id), "no check for " + id);
            return DynamicTest.dynamicTest(id, CHECKS.get(id));
        });
    }

    @Test
    void aParameterIsABrokerWithTheOptionsOfTheExtension(TestBroker broker) throws Exception {
        assertEquals(2, partitions(broker, "extension"));
    }

    private static int partitions(TestBroker broker, String topic) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", broker.bootstrapServers()))) {
            return admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions().size();
        }
    }

    private static void produce(TestBroker broker, String topic, String... values) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", broker.bootstrapServers());
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String value : values) {
                producer.send(new ProducerRecord<>(topic, value)).get();
            }
        }
    }

    private static List<String> consume(TestBroker broker, String topic, int count) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", broker.bootstrapServers(), "group.id", "g", "auto.offset.reset", "earliest");
        var values = new ArrayList<String>();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Set.of(topic));
            long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (values.size() < count) {
                assertTrue(System.nanoTime() < end, values.size() + " of " + count + " records");
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> values.add(record.value()));
            }
        }
        values.sort(null);
        return values;
    }

    private static void refused(Executable action, String... words) {
        var message = assertThrows(HighwaterException.class, action).getMessage();
        for (String word : words) {
            assertTrue(message.contains(word), word + " is not in: " + message);
        }
    }

    private static void serves() throws Exception {
        try (var broker = TestBroker.start("orders:3", "payments")) {
            assertEquals(3, partitions(broker, "orders"));
            assertEquals(1, partitions(broker, "payments"));
            produce(broker, "orders", "a", "b");
            assertEquals(List.of("a", "b"), consume(broker, "orders", 2));
        }
    }

    private static void fields() {
        try (var broker = TestBroker.start()) {
            assertTrue(broker.bootstrapServers().matches("127\\.0\\.0\\.1:\\d+"));
            assertTrue(broker.http().matches("http://127\\.0\\.0\\.1:\\d+"));
            assertTrue(Files.isDirectory(broker.dataDir()));
            assertTrue(ProcessHandle.of(broker.pid()).orElseThrow().isAlive());
            assertEquals(1, broker.brokers());
            assertTrue(broker.version().matches("\\d+\\.\\d+\\.\\d+.*"));
        }
    }

    private static void findsBinary() {
        System.setProperty(TestBroker.BINARY_VARIABLE, "/nowhere/highwater");
        try {
            refused(TestBroker::start, "HIGHWATER_BIN", "/nowhere/highwater");
        } finally {
            System.clearProperty(TestBroker.BINARY_VARIABLE);
        }
    }

    private static void stops() {
        var broker = TestBroker.start();
        assertTrue(broker.isRunning());
        broker.close();
        broker.close();
        assertFalse(broker.isRunning());
        assertFalse(Files.exists(broker.dataDir()));
        assertTrue(ProcessHandle.of(broker.pid()).isEmpty());
    }

    private static void refusedStart() {
        refused(() -> TestBroker.start("a:0"), "NAME:PARTITIONS");
    }

    private static void settings() {
        try (var broker = new TestBroker.Options().set("auto.create.topics.enable", "false").start()) {
            var cause = assertThrows(ExecutionException.class, () -> partitions(broker, "new")).getCause();
            assertEquals(UnknownTopicOrPartitionException.class, cause.getClass());
            var settings = Map.<String, Object>of("bootstrap.servers", broker.bootstrapServers(), "max.block.ms", 500);
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                var sent = producer.send(new ProducerRecord<>("new", "a"));
                assertThrows(ExecutionException.class, sent::get);
            }
        }
    }

    private static void setsFault() throws Exception {
        try (var broker = TestBroker.start("orders")) {
            broker.setFault("refused", """
                    {"api": "Produce", "occurrence": "once", "action": {"error": {"code": "NOT_LEADER_OR_FOLLOWER"}}}""");
            produce(broker, "orders", "a");
            assertEquals(1, broker.faults("refused"));
            assertEquals(2, broker.matches("refused"));
            assertEquals(List.of("a"), consume(broker, "orders", 1));
        }
    }

    private static void removesFault() {
        try (var broker = TestBroker.start()) {
            for (String name : List.of("a", "b/c", "d")) {
                broker.setFault(name, "{\"api\": \"Produce\", \"action\": \"close\"}");
            }
            broker.removeFault("b/c");
            assertTrue(broker.faults().contains("\"d\"") && !broker.faults().contains("b/c"), broker.faults());
            broker.clearFaults();
            assertTrue(broker.faults().contains("\"rules\":[]"), broker.faults());
            refused(() -> broker.removeFault("unheard-of"), "unheard-of");
        }
    }

    private static void refusesFault() {
        try (var broker = TestBroker.start()) {
            refused(() -> broker.setFault("x", "{\"action\": \"explode\"}"), "explode", "drop_answer");
        }
    }

    private static void faultsAtStart() {
        var options = new TestBroker.Options().seed(11);
        options.fault("{\"name\": \"slow\", \"api\": \"Fetch\", \"action\": {\"delay\": {\"ms\": 5}}}");
        try (var broker = options.start()) {
            assertTrue(broker.fault("slow").contains("\"ms\":5"), broker.faults());
            assertTrue(broker.faults().contains("\"seed\":11"), broker.faults());
        }
    }

    private static void twoAtOnce() throws Exception {
        try (var one = TestBroker.start("t"); var other = TestBroker.start("t")) {
            assertNotEquals(one.bootstrapServers(), other.bootstrapServers());
            assertNotEquals(one.dataDir(), other.dataDir());
            produce(one, "t", "one");
            produce(other, "t", "other");
            assertEquals(List.of("one"), consume(one, "t", 1));
            assertEquals(List.of("other"), consume(other, "t", 1));
        }
    }

    private static void snapshots() throws Exception {
        try (var broker = TestBroker.start("t")) {
            produce(broker, "t", "a");
            broker.snapshot("s");
            produce(broker, "t", "b");
            var fork = broker.fork("s");
            produce(fork, "t", "c");
            assertEquals(List.of("a", "c"), consume(fork, "t", 2));
            assertTrue(fork.isRunning());
            assertNotEquals(fork.bootstrapServers(), broker.bootstrapServers());
            fork.close();
            fork.close();
            ended(fork);
            assertEquals(List.of("a", "b"), consume(broker, "t", 2));
            var left = broker.fork("s");
            broker.close();
            left.close();
            ended(left);
        }
    }

    private static void ended(TestBroker fork) {
        assertFalse(fork.isRunning());
        assertFalse(Files.exists(fork.dataDir()));
        assertTrue(ProcessHandle.of(fork.pid()).isEmpty());
    }

    private static void refusesSnapshot() {
        try (var broker = TestBroker.start()) {
            broker.snapshot("s");
            refused(() -> broker.snapshot("s"), "\"s\"");
            refused(() -> broker.fork("unheard-of"), "\"unheard-of\"", "\"s\"");
            broker.removeSnapshot("s");
            broker.snapshot("s");
        }
    }
}
