// Writes what Kafka's own classes make of every message in every version: the golden bytes.
//
// Run by `cargo xt golden`, which passes the output folder and then, for every file, its name and
// for every message in it `role:class:low:high`. A line of a file is
//
//     role version filling hex json
//
// Filling: `default` is a new object; `full` has every field of the version set; `null` has null
// wherever the version allows it and negative numbers elsewhere. Values are counted up, so that
// no two fields of a message hold the same one (as far as their types go).

import com.fasterxml.jackson.databind.JsonNode;
import java.io.PrintWriter;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

public final class Golden {
    private static final String PACKAGE = "org.apache.kafka.common.message.";

    private final boolean nulls;
    private int counter = 0;

    private Golden(boolean nulls) {
        this.nulls = nulls;
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        PrintWriter out = null;
        for (int i = 1; i < arguments.length; i++) {
            String[] parts = arguments[i].split(":");
            if (parts.length == 1) {
                if (out != null) out.close();
                Path file = folder.resolve(parts[0] + ".txt");
                out = new PrintWriter(Files.newBufferedWriter(file, StandardCharsets.UTF_8));
            } else {
                int high = Integer.parseInt(parts[3]);
                for (int v = Integer.parseInt(parts[2]); v <= high; v++) {
                    write(out, parts[0], Class.forName(PACKAGE + parts[1]), (short) v);
                }
            }
        }
        if (out != null) out.close();
    }

    private static void write(PrintWriter out, String role, Class<?> type, short version)
            throws Exception {
        line(out, role, version, "default", (Message) type.getConstructor().newInstance());
        Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[version];
        for (boolean nulls : new boolean[] {false, true}) {
            Object message = new Golden(nulls).filled(type, schema);
            line(out, role, version, nulls ? "null" : "full", (Message) message);
        }
    }

    private static void line(
            PrintWriter out, String role, short version, String filling, Message message)
            throws Exception {
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Method write = converter.getMethod("write", message.getClass(), short.class);
        JsonNode json = (JsonNode) write.invoke(null, message, version);
        String hex = HexFormat.of().formatHex(bytes);
        out.println(String.join(" ", role, "" + version, filling, hex, json.toString()));
    }

    private Object filled(Class<?> type, Schema schema) throws Exception {
        Object object = type.getConstructor().newInstance();
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields) {
                for (Field field : ((TaggedFields) bound.def.type).fields().values()) {
                    set(object, field);
                }
            } else {
                set(object, bound.def);
            }
        }
        return object;
    }

    private void set(Object object, Field field) throws Exception {
        String name = "set" + field.name.replace("_", "");
        for (Method method : object.getClass().getMethods()) {
            if (method.getName().toLowerCase(Locale.ROOT).equals(name.toLowerCase(Locale.ROOT))) {
                method.invoke(object, value(method, field.type));
                return;
            }
        }
        throw new IllegalStateException(object.getClass() + " has no " + name);
    }

    private Object value(Method setter, Type type) throws Exception {
        Class<?> kind = setter.getParameterTypes()[0];
        if (nulls && type.isNullable()) return null;
        if (Collection.class.isAssignableFrom(kind)) return collection(setter, type);
        return scalar(kind, type);
    }

    private Object collection(Method setter, Type type) throws Exception {
        Class<?> kind = setter.getParameterTypes()[0];
        @SuppressWarnings("unchecked")
        Collection<Object> out = kind == List.class
            ? new ArrayList<>()
            : (Collection<Object>) kind.getConstructor().newInstance();
        java.lang.reflect.Type generic = kind == List.class
            ? setter.getGenericParameterTypes()[0]
            : kind.getGenericSuperclass();
        Class<?> element = (Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0];
        Type elementType = type.arrayElementType().orElseThrow();
        for (int i = 0; i < (nulls ? 1 : 2); i++) out.add(scalar(element, elementType));
        return out;
    }

    private Object scalar(Class<?> kind, Type type) throws Exception {
        int n = ++counter;
        int sign = nulls ? -1 : 1;
        if (kind == boolean.class || kind == Boolean.class) return !nulls;
        if (kind == byte.class || kind == Byte.class) return (byte) (sign * (n % 127));
        if (kind == short.class || kind == Short.class) return (short) (sign * (n + 0x100));
        // A uint16 is an int in Java.
        boolean unsigned = type.toString().equals("UINT16");
        if (unsigned) return n + 0x8000;
        if (kind == int.class || kind == Integer.class) return sign * (n + 0x10000);
        if (kind == long.class || kind == Long.class) return sign * (n + 0x100000000L);
        if (kind == double.class || kind == Double.class) return sign * (n + 0.5);
        if (kind == String.class) return nulls ? "é" + n : "text-" + n;
        if (kind == Uuid.class) return new Uuid(n + 0x1234567890L, sign * (long) n);
        if (kind == byte[].class) return bytes(n);
        if (kind == ByteBuffer.class) return ByteBuffer.wrap(bytes(n));
        if (kind.getName().endsWith("BaseRecords")) return records(n);
        return filled(kind, (Schema) type);
    }

    private static byte[] bytes(int n) {
        return new byte[] {(byte) n, 0, (byte) 0xff, 1, 2};
    }

    private static MemoryRecords records(int n) {
        byte[] text = ("value-" + n).getBytes(StandardCharsets.UTF_8);
        return MemoryRecords.withRecords(
            Compression.NONE, new SimpleRecord(1000L + n, null, text), new SimpleRecord(text));
    }
}
