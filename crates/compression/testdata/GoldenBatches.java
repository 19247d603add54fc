// Writes one batch for every codec as the Java producer does, and reads batches back.
//
//   java -cp 'kafka-clients.jar:…' GoldenBatches.java write DIR
//   java -cp 'kafka-clients.jar:…' GoldenBatches.java read FILE...
//
// The files <codec>.batch beside this one came from "write" with kafka-clients 4.3.1.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;

class GoldenBatches {
    static final int COUNT = 200;

    static byte[] key(int i) {
        return i % 7 == 0 ? null : ("key-" + i).getBytes();
    }

    static byte[] value(int i) {
        return i % 11 == 0 ? null : ("value-" + i + ";").repeat(40 + i % 13).getBytes();
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            for (CompressionType type : CompressionType.values()) write(type, Path.of(args[1]));
        } else {
            for (int i = 1; i < args.length; i++) read(Path.of(args[i]));
        }
    }

    static void write(CompressionType type, Path dir) throws Exception {
        var builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), RecordBatch.MAGIC_VALUE_V2,
            Compression.of(type).build(), TimestampType.CREATE_TIME, 0L);
        for (int i = 0; i < COUNT; i++) builder.append(1_700_000_000_000L + i, key(i), value(i));
        ByteBuffer buffer = builder.build().buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Files.write(dir.resolve(type.name + ".batch"), bytes);
    }

    static void read(Path file) throws Exception {
        var records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
        int i = 0;
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (var record : batch) {
                check(record.key(), key(i), i);
                check(record.value(), value(i), i);
                i++;
            }
        }
        if (i != COUNT) throw new AssertionError(file + ": " + i + " records");
        System.out.println(file + ": ok");
    }

    static void check(ByteBuffer found, byte[] expected, int i) {
        ByteBuffer wrapped = expected == null ? null : ByteBuffer.wrap(expected);
        if (!java.util.Objects.equals(found, wrapped)) throw new AssertionError("record " + i);
    }
}
