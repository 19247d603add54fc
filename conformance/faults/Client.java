import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends a and b to partition 0 of a topic, reads the topic, and prints the reports: {@code Client.java BOOTSTRAP TOPIC}. */
public class Client {
    private static final Duration READ_MAX = Duration.ofSeconds(20);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "client.id", "java",
                "delivery.timeout.ms", 8000,
                "request.timeout.ms", 3000,
                "linger.ms", 0,
                "max.block.ms", 8000);
        var reports = new ArrayList<String>();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String value : List.of("a", "b")) {
                reports.add(send(producer, new ProducerRecord<>(topic, 0, null, value)));
            }
        }
        System.out.println("{\"reports\": " + json(reports) + ", \"read\": " + json(read(bootstrap, topic)) + "}");
    }

    private static String send(KafkaProducer<String, String> producer, ProducerRecord<String, String> record)
            throws InterruptedException {
        try {
            producer.send(record).get();
            return "ok";
        } catch (ExecutionException failed) {
            return failed.getCause().getClass().getSimpleName();
        }
    }

    private static List<String> read(String bootstrap, String topic) {
        var values = new ArrayList<String>();
        var partition = new TopicPartition(topic, 0);
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long start = System.nanoTime();
            while (values.size() < end && System.nanoTime() - start < READ_MAX.toNanos()) {
                try {
                    consumer.poll(Duration.ofMillis(200)).forEach(record -> values.add(record.value()));
                } catch (RuntimeException failed) {
                    values.add(failed.getClass().getSimpleName());
                    break;
                }
            }
        }
        return values;
    }

    private static String json(List<String> values) {
        return "[" + String.join(", ", values.stream().map(value -> "\"" + value + "\"").toList()) + "]";
    }
}
