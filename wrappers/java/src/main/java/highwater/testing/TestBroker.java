package highwater.testing;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ProxySelector;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A broker, or several, for one test: a process of {@code highwater test-broker}. Rules of faults are JSON. */
public final class TestBroker implements AutoCloseable {
    /** Names the program {@code highwater}; a system property of this name wins over the environment variable. */
    public static final String BINARY_VARIABLE = "HIGHWATER_BIN";
    /** The program in this artifact, if it has one. */
    private static final String PACKAGED = "/highwater/bin/highwater";
    private static final Duration START_TIMEOUT = Duration.ofSeconds(60);
    private static final Duration STOP_TIMEOUT = Duration.ofSeconds(30);
    private static final Duration HTTP_TIMEOUT = Duration.ofSeconds(30);

    /** One client for all brokers: each client has a thread and sockets of its own. */
    private static final HttpClient HTTP =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).proxy(ProxySelector.of(null)).build();

    private final Process process;
    private final Path log;
    private final String ready;
    /** The broker of which this one is a fork, or null. */
    private final TestBroker parent;

    private TestBroker(Process process, Path log, String ready, TestBroker parent) {
        this.process = process;
        this.log = log;
        this.ready = ready;
        this.parent = parent;
    }

    /** Options of a broker. */
    public static final class Options {
        private final List<String> line = new ArrayList<>(List.of("test-broker"));
        private final List<String> rules = new ArrayList<>();
        private String binary;

        /** Creates topics: {@code NAME} or {@code NAME:PARTITIONS} each. */
        public Options topics(String... topics) {
            return topics.length == 0 ? this : arguments("--topics", String.join(",", topics));
        }

        /** Starts so many brokers. */
        public Options brokers(int count) {
            return arguments("--brokers", Integer.toString(count));
        }

        /** Sets a configuration key of the broker. */
        public Options set(String key, String value) {
            return arguments("--set", key + "=" + value);
        }

        /** Adds a rule at the start, with its name. */
        public Options fault(String rule) {
            rules.add(rule);
            return this;
        }

        /** Sets the seed of the rules that fire by probability. */
        public Options seed(long seed) {
            return arguments("--seed", Long.toUnsignedString(seed));
        }

        /** Keeps the data in this folder; a temporary one otherwise. */
        public Options dataDir(Path folder) {
            return arguments("--data-dir", folder.toString());
        }

        /** Adds arguments of {@code highwater test-broker}. */
        public Options arguments(String... arguments) {
            line.addAll(List.of(arguments));
            return this;
        }

        /** Names the program; {@link #findBinary} finds it otherwise. */
        public Options binary(Path binary) {
            this.binary = binary.toString();
            return this;
        }

        /** Starts the broker and waits until it serves. */
        public TestBroker start() {
            Path file = null;
            try {
                List<String> command = new ArrayList<>(List.of(binary == null ? findBinary() : binary));
                command.addAll(line);
                if (!rules.isEmpty()) {
                    file = Files.createTempFile("highwater-rules-", ".json");
                    Files.writeString(file, "{\"rules\": [" + String.join(",", rules) + "]}");
                    command.addAll(List.of("--faults", file.toString()));
                }
                return TestBroker.start(command);
            } catch (IOException cause) {
                throw new HighwaterException("the test broker did not start: " + cause.getMessage(), cause);
            } finally {
                delete(file);
            }
        }
    }

    /** Starts a broker with these topics. */
    public static TestBroker start(String... topics) {
        return new Options().topics(topics).start();
    }

    /** Returns the path of {@code highwater}: of HIGHWATER_BIN, of this artifact, or of PATH. */
    public static String findBinary() throws IOException {
        String named = System.getProperty(BINARY_VARIABLE, System.getenv(BINARY_VARIABLE));
        if (named != null && !named.isEmpty()) {
            if (!isProgram(Path.of(named))) {
                throw new HighwaterException(BINARY_VARIABLE + " names " + named + ", which is not a program");
            }
            return named;
        }
        String packaged = Packaged.PATH;
        if (packaged != null) {
            return packaged;
        }
        String path = System.getenv("PATH");
        for (String folder : (path == null ? "" : path).split(java.io.File.pathSeparator)) {
            if (!folder.isEmpty() && isProgram(Path.of(folder, "highwater"))) {
                return Path.of(folder, "highwater").toString();
            }
        }
        throw new HighwaterException(
                "highwater is not installed: set " + BINARY_VARIABLE + " to its path, or put it on PATH");
    }

    private static boolean isProgram(Path file) {
        return Files.isRegularFile(file) && Files.isExecutable(file);
    }

    /** The program of this artifact, copied out of it once. */
    private static final class Packaged {
        static final String PATH = extract();

        private static String extract() {
            try (var program = TestBroker.class.getResourceAsStream(PACKAGED)) {
                if (program == null) {
                    return null;
                }
                Path file = Files.createTempFile("highwater-", "");
                file.toFile().deleteOnExit();
                Files.copy(program, file, java.nio.file.StandardCopyOption.REPLACE_EXISTING);
                if (!file.toFile().setExecutable(true)) {
                    throw new IOException("cannot make " + file + " executable");
                }
                return file.toString();
            } catch (IOException cause) {
                throw new HighwaterException("cannot copy the packaged program: " + cause.getMessage(), cause);
            }
        }
    }

    private static TestBroker start(List<String> command) throws IOException {
        Path log = Files.createTempFile("highwater-", ".log");
        // The end of the pipe on standard input ends the broker, also when this process is killed.
        Process process = new ProcessBuilder(command).redirectError(log.toFile()).start();
        var timer = process.onExit().orTimeout(START_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
        timer.exceptionally(cause -> cause instanceof TimeoutException ? process.destroyForcibly() : process);
        var reader = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String line = reader.readLine();
        timer.cancel(false);
        if (line == null) {
            String said = Files.readString(log).strip();
            delete(log);
            throw new HighwaterException("the test broker did not start: " + said);
        }
        return new TestBroker(process, log, line, null);
    }

    private static void delete(Path file) {
        try {
            if (file != null) {
                Files.deleteIfExists(file);
            }
        } catch (IOException left) {
            file.toFile().deleteOnExit();
        }
    }

    /** Returns a text or number of a JSON object that has no field of the same name inside another. */
    private static String field(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":(?:\"((?:[^\"\\\\]|\\\\.)*)\"|(-?[0-9]+))").matcher(json);
        if (!found.find()) {
            throw new HighwaterException("no " + name + " in " + json);
        }
        return found.group(1) == null ? found.group(2) : found.group(1).replace("\\\"", "\"").replace("\\\\", "\\");
    }

    /** Returns where clients connect, {@code host:port}. */
    public String bootstrapServers() {
        return field(ready, "bootstrap_servers");
    }

    /** Returns the address of metrics and fault rules. */
    public String http() {
        return field(ready, "http");
    }

    /** Returns the folder of the data. */
    public Path dataDir() {
        return Path.of(field(ready, "data_dir"));
    }

    /** Returns the process id. */
    public long pid() {
        return Long.parseLong(field(ready, "pid"));
    }

    /** Returns the number of brokers. */
    public int brokers() {
        return Integer.parseInt(field(ready, "brokers"));
    }

    /** Returns the version of the program. */
    public String version() {
        return field(ready, "version");
    }

    /** Returns whether the process runs: a rule with the action {@code kill} ends it. */
    public boolean isRunning() {
        if (parent != null) {
            return parent.isRunning() && parent.call("GET", "/forks", null).contains("\"pid\":" + pid() + ",");
        }
        return process.isAlive();
    }

    /** Returns the reports of the program so far, of a fork those of its broker; empty after {@link #close}. */
    public String log() {
        if (parent != null) {
            return parent.log();
        }
        try {
            return Files.exists(log) ? Files.readString(log) : "";
        } catch (IOException cause) {
            throw new HighwaterException("cannot read " + log, cause);
        }
    }

    /** Ends the broker, its forks, and their temporary folders. Does nothing if it has ended. */
    @Override
    public void close() {
        if (parent != null) {
            if (isRunning()) {
                parent.call("DELETE", "/forks/" + pid(), null);
            }
            return;
        }
        try {
            process.getOutputStream().close();
        } catch (IOException ended) {
            // The process has closed its end.
        }
        try {
            if (!process.waitFor(STOP_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS)) {
                process.destroyForcibly().waitFor();
            }
        } catch (InterruptedException interrupted) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        delete(log);
    }

    /** Keeps the data of this moment under a name: records, topics, groups' offsets. */
    public void snapshot(String name) {
        call("PUT", path("snapshots", name), null);
    }

    /** Removes a snapshot. Its forks go on. */
    public void removeSnapshot(String name) {
        call("DELETE", path("snapshots", name), null);
    }

    /** Starts a broker with the data of a snapshot. It ends by {@link #close}, or with this broker. */
    public TestBroker fork(String name) {
        return new TestBroker(process, log, call("POST", path("snapshots", name) + "/forks", null), this);
    }

    /** Returns all rules with their counts, and the seed: JSON. */
    public String faults() {
        return call("GET", "/faults", null);
    }

    /** Returns one rule with its counts: JSON. */
    public String fault(String name) {
        return call("GET", path("faults", name), null);
    }

    /** Returns how many requests a rule matched. */
    public long matches(String name) {
        return Long.parseLong(field(fault(name), "matches"));
    }

    /** Returns how many faults a rule injected. */
    public long faults(String name) {
        return Long.parseLong(field(fault(name), "faults"));
    }

    /** Sets a rule, in the place of the one of its name. Its counts begin at 0. */
    public void setFault(String name, String rule) {
        call("PUT", path("faults", name), rule);
    }

    /** Removes a rule. */
    public void removeFault(String name) {
        call("DELETE", path("faults", name), null);
    }

    /** Removes all rules. */
    public void clearFaults() {
        call("DELETE", "/faults", null);
    }

    private static String path(String kind, String name) {
        return "/" + kind + "/" + URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private String call(String method, String path, String body) {
        var sent = body == null
                ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofString(body);
        var request = HttpRequest.newBuilder(URI.create(http() + path)).method(method, sent).timeout(HTTP_TIMEOUT);
        try {
            var answer = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() >= 400) {
                throw new HighwaterException(field(answer.body(), "error"));
            }
            return answer.body();
        } catch (IOException cause) {
            throw new HighwaterException("cannot reach the test broker: " + cause.getMessage(), cause);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new HighwaterException("interrupted", interrupted);
        }
    }
}
