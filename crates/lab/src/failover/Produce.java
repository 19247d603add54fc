// Kafka's own client as a producer under kills. What it reads and writes is said in producing.rs beside it.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

public class Produce {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static volatile int partition = -1;
    private static volatile boolean ended = false;

    public static void main(String[] arguments) throws Exception {
        String topic = System.getenv("TOPIC");
        double rate = Double.parseDouble(System.getenv("RATE"));
        int bytes = Integer.parseInt(System.getenv("RECORD_BYTES"));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.partitionsFor(topic);
            say("ready " + AppInfoParser.getVersion());
            Thread listener = new Thread(Produce::listen);
            listener.setDaemon(true);
            listener.start();
            send(producer, topic, rate, bytes);
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, double rate, int bytes) {
        long next = System.nanoTime();
        long pause = (long) (1e9 / rate);
        long sequence = 0;
        while (!ended) {
            next += pause;
            for (long left = next - System.nanoTime(); left > 0; left = next - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            int to = partition;
            if (to < 0) {
                continue;
            }
            long number = sequence++;
            producer.send(new ProducerRecord<>(topic, to, null, value(number, bytes)), (told, error) -> {
                if (error == null) {
                    Instant now = Instant.now();
                    long micros = now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
                    say("ack " + number + " " + to + " " + told.offset() + " " + micros);
                } else {
                    say("error " + number + " " + String.valueOf(error).replace('\n', ' '));
                }
            });
        }
    }

    private static byte[] value(long number, int bytes) {
        StringBuilder value = new StringBuilder(number + " ");
        while (value.length() < bytes) {
            value.append('.');
        }
        return value.toString().getBytes(StandardCharsets.US_ASCII);
    }

    private static void listen() {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                partition = Integer.parseInt(line.substring("partition ".length()));
            }
        } catch (Exception error) {
            error.printStackTrace();
        } finally {
            ended = true;
        }
    }

    private static synchronized void say(String line) {
        OUT.println(line);
    }
}
