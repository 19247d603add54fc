// Writes the content of the data folder beside this file to a running Kafka (`write`), or prints
// the content that a consumer and an admin client see (`read`). Run with Kafka's libraries:
//   java -cp 'KAFKA/libs/*' Transactions.java write|read BOOTSTRAP-SERVERS

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class Transactions {
    static final TopicPartition PARTITION = new TopicPartition("ledger", 0);
    static String servers;

    public static void main(String[] args) throws Exception {
        servers = args[1];
        if (args[0].equals("write")) write();
        else read();
        System.out.flush();
        // A producer with an open transaction is left as it is.
        Runtime.getRuntime().halt(0);
    }

    static KafkaProducer<String, String> producer(String id) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        config.put("transactional.id", id);
        config.put("transaction.timeout.ms", 900000);
        var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    static void send(KafkaProducer<String, String> producer, String value) throws Exception {
        producer.send(new ProducerRecord<>("ledger", 0, "k", value)).get();
    }

    static void commit(KafkaProducer<String, String> producer, String group, long offset) {
        var offsets = Map.of(PARTITION, new OffsetAndMetadata(offset, "of a transaction"));
        producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
    }

    static void write() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic("ledger", 1, (short) 1))).all().get();
            for (int round = 1; round <= 2; round++)
                for (int n = 0; n < 20; n++) store(admin, "g-" + n, round * 100 + n);
            store(admin, "my-group", 3);
            store(admin, "probe", 4);
            store(admin, "gone", 5);
            store(admin, "outdated", 6);
            admin.deleteConsumerGroups(List.of("gone")).all().get();

            var one = producer("one");
            var two = producer("two");
            one.beginTransaction();
            two.beginTransaction();
            for (int n = 0; n < 3; n++) {
                send(one, "committed-" + n);
                send(two, "aborted-" + n);
            }
            commit(one, "eos0", 5);
            commit(one, "eos-negative", 6);
            commit(one, "outdated", 7);
            // Newer than the record in the transaction, which is committed later.
            store(admin, "outdated", 8);
            one.commitTransaction();
            commit(two, "eos0", 99);
            commit(two, "eos-negative", 98);
            commit(two, "never", 97);
            two.abortTransaction();
            one.beginTransaction();
            send(one, "committed-3");
            one.commitTransaction();
            two.beginTransaction();
            send(two, "aborted-3");
            two.abortTransaction();
            var open = producer("open");
            open.beginTransaction();
            send(open, "open-0");
            commit(open, "eos0", 77);
            open.flush();
        }
    }

    static void store(Admin admin, String group, long offset) throws Exception {
        var offsets = Map.of(PARTITION, new OffsetAndMetadata(offset, "plain"));
        admin.alterConsumerGroupOffsets(group, offsets).all().get();
    }

    static void read() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            var names = new TreeSet<String>();
            admin.listGroups().all().get().forEach(group -> names.add(group.groupId()));
            for (String group : names) {
                var stored = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                if (stored.get(PARTITION) != null)
                    System.out.println(group + " " + stored.get(PARTITION).offset()
                        + " " + stored.get(PARTITION).metadata());
            }
        }
        for (String isolation : List.of("read_committed", "read_uncommitted")) {
            Map<String, Object> config = new HashMap<>();
            config.put("bootstrap.servers", servers);
            config.put("isolation.level", isolation);
            config.put("enable.auto.commit", false);
            var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            consumer.assign(List.of(PARTITION));
            consumer.seekToBeginning(List.of(PARTITION));
            long end = consumer.endOffsets(List.of(PARTITION)).get(PARTITION);
            while (consumer.position(PARTITION) < end)
                for (var record : consumer.poll(Duration.ofMillis(200)))
                    System.out.println(isolation + " " + record.offset() + " " + record.value());
            consumer.close();
        }
    }
}
