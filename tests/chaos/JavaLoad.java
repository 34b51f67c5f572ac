import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own Java clients as a load, with everything they are told in a history.
 *
 * Arguments: bootstrap, history, name, partitions, roles with commas, and a file with more options of all clients, if
 * there are any. Roles, input and output are those of librdkafka_load.py, but for the copier, and the sharer of
 * share_load.py.
 */
public final class JavaLoad {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PAUSE_MS = 20;
    private static final int GIVE_UP_MS = 90_000;
    private static final int BUFFERED_POLLS = 6;

    private final String bootstrap;
    private final BufferedWriter history;
    private final String name;
    private final int partitions;
    private final Properties options;
    private final CountDownLatch quiet = new CountDownLatch(1);
    private final CountDownLatch over = new CountDownLatch(1);

    private JavaLoad(String bootstrap, BufferedWriter history, String name, int partitions, Properties options) {
        this.bootstrap = bootstrap;
        this.history = history;
        this.name = name;
        this.partitions = partitions;
        this.options = options;
    }

    public static void main(String[] args) throws Exception {
        Properties options = new Properties();
        if (args.length > 5) {
            try (BufferedReader file = Files.newBufferedReader(Path.of(args[5]))) {
                options.load(file);
            }
        }
        int partitions = Integer.parseInt(args[3]);
        try (BufferedWriter history = Files.newBufferedWriter(Path.of(args[1]))) {
            System.out.println("ready");
            new JavaLoad(args[0], history, args[2], partitions, options).run(List.of(args[4].split(",")));
        }
    }

    private void run(List<String> roles) throws Exception {
        List<Thread> writing = new ArrayList<>();
        List<Thread> reading = new ArrayList<>();
        for (String role : roles) {
            switch (role) {
                case "writer" -> writing.add(start(this::write));
                case "mover" -> writing.add(start(this::move));
                case "reader" -> reading.add(start(this::read));
                case "member" -> reading.add(start(this::join));
                case "sharer" -> reading.add(start(this::share));
                default -> throw new IllegalArgumentException(role);
            }
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        input.readLine();
        quiet.countDown();
        for (Thread each : writing) {
            each.join();
        }
        System.out.println("quiet");
        while (input.readLine() != null) {}
        over.countDown();
        for (Thread each : reading) {
            each.join();
        }
    }

    private static Thread start(Runnable role) {
        Thread thread = new Thread(role);
        // A role that dies of something unexpected must not look like one that had nothing to say.
        thread.setUncaughtExceptionHandler((who, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(3);
        });
        thread.start();
        return thread;
    }

    // Roles

    private void write() {
        Properties settings = producing();
        settings.put("delivery.timeout.ms", GIVE_UP_MS);
        settings.put("linger.ms", 1);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 1; !waited(quiet); number++) {
                for (int partition = 0; partition < partitions; partition++) {
                    send(producer, "writer", "plain", partition, number, null);
                }
            }
            producer.flush();
        }
    }

    private void move() {
        int number = 0;
        Random random = new Random(7);
        while (quiet.getCount() > 0) {
            Properties settings = producing();
            settings.put("transactional.id", name + "-mover");
            settings.put("transaction.timeout.ms", 20_000);
            settings.put("delivery.timeout.ms", 20_000);
            settings.put("linger.ms", 0);
            settings.put("max.block.ms", 10_000);
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                patiently(producer::initTransactions);
                while (!waited(quiet)) {
                    number++;
                    move(producer, number, random);
                }
            } catch (KafkaException error) {
                tell("mover", "trouble", Map.of("error", error.toString()));
            }
        }
    }

    private void move(KafkaProducer<String, String> producer, int number, Random random) {
        String transaction = name + "-transaction-" + number;
        producer.beginTransaction();
        boolean committing = false;
        try {
            int count = 1 + random.nextInt(4);
            for (int place = 0; place < count; place++) {
                send(producer, "mover", "moves", random.nextInt(partitions), number * 10 + place, transaction);
            }
            if (number % 4 != 0) {
                committing = true;
                patiently(producer::commitTransaction);
                tell("mover", "committed", Map.of("transaction", transaction));
                return;
            }
        } catch (KafkaException error) {
            tell("mover", "trouble", Map.of("error", error.toString()));
            if (committing) {
                // A commit that failed may have been made all the same; only the next producer puts an end to it.
                tell("mover", "unsure", Map.of("transaction", transaction));
                throw error;
            }
        }
        try {
            patiently(producer::abortTransaction);
            tell("mover", "aborted", Map.of("transaction", transaction));
        } catch (KafkaException error) {
            tell("mover", "unsure", Map.of("transaction", transaction));
            throw error;
        }
    }

    private void read() {
        List<TopicPartition> all = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            all.add(new TopicPartition("plain", partition));
            all.add(new TopicPartition("moves", partition));
        }
        Random random = new Random(3);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming(name + "-reader"))) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            for (TopicPartition each : all) {
                tell("reader", "began", Map.of("at", each.toString()));
            }
            long askAt = 0;
            while (over.getCount() > 0) {
                poll(consumer, "reader", null);
                if (System.nanoTime() > askAt) {
                    askAt = System.nanoTime() + 500_000_000L;
                    askEnd(consumer, all.get(random.nextInt(all.size())));
                }
            }
        }
    }

    private void askEnd(KafkaConsumer<String, String> consumer, TopicPartition at) {
        double since = now();
        try {
            long end = consumer.endOffsets(List.of(at), Duration.ofSeconds(2)).get(at);
            tell("reader", "end", Map.of("at", at.toString(), "offset", end, "since", since));
        } catch (KafkaException error) {
            // Asked again soon; what counts is what is told.
        }
    }

    private void join() {
        Properties settings = consuming("members");
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 1000);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of("plain"), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> gone) {}

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> mine) {
                    begin(consumer, mine);
                }
            });
            while (over.getCount() > 0) {
                poll(consumer, "member", "members");
                save(consumer);
            }
            long deadline = System.nanoTime() + GIVE_UP_MS * 1_000_000L;
            while (System.nanoTime() < deadline && !isAtEnd(consumer)) {
                poll(consumer, "member", "members");
            }
            save(consumer);
        }
    }

    /** A member of the share group that share_load.py configures; after an error, a new one. */
    private void share() {
        Properties settings = settings();
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("group.id", "sharers");
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", 20);
        Random random = new Random(name.hashCode());
        for (int life = 1; over.getCount() > 0; life++) {
            try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
                consumer.subscribe(List.of("plain"));
                share(consumer, "sharer." + life, random);
            } catch (KafkaException error) {
                tell("sharer." + life, "trouble", Map.of("error", error.toString()));
            }
        }
    }

    private void share(KafkaShareConsumer<String, String> consumer, String role, Random random) {
        ArrayDeque<Double> begun = new ArrayDeque<>(List.of(now()));
        while (over.getCount() > 0) {
            // What a poll returns may have been fetched for one of the polls before it.
            double since = begun.peekFirst();
            begun.addLast(now());
            if (begun.size() > BUFFERED_POLLS) {
                begun.removeFirst();
            }
            ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(500));
            if (found.isEmpty()) {
                continue;
            }
            List<List<Object>> records = new ArrayList<>();
            List<Integer> counts = new ArrayList<>();
            Map<TopicPartition, Map<String, List<Long>>> given = new LinkedHashMap<>();
            for (ConsumerRecord<String, String> each : found) {
                TopicPartition at = new TopicPartition(each.topic(), each.partition());
                records.add(List.of(at.toString(), each.offset(), each.value()));
                counts.add((int) each.deliveryCount().orElse((short) 0));
                int draw = random.nextInt(100);
                AcknowledgeType how = draw < 80 ? AcknowledgeType.ACCEPT
                        : draw < 95 ? AcknowledgeType.RELEASE : AcknowledgeType.REJECT;
                consumer.acknowledge(each, how);
                given.computeIfAbsent(at, key -> new LinkedHashMap<>())
                        .computeIfAbsent(how.toString(), key -> new ArrayList<>()).add(each.offset());
            }
            tell(role, "acquired", Map.of("records", records, "counts", counts, "since", since, "group", "sharers"));
            tellGiven(role, "acknowledging", given);
            Map<TopicPartition, Map<String, List<Long>>> stored = new LinkedHashMap<>();
            for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : consumer.commitSync().entrySet()) {
                TopicPartition at = each.getKey().topicPartition();
                if (each.getValue().isEmpty() && given.containsKey(at)) {
                    stored.put(at, given.get(at));
                }
            }
            tellGiven(role, "acknowledged", stored);
        }
    }

    private void tellGiven(String role, String what, Map<TopicPartition, Map<String, List<Long>>> given) {
        given.forEach((at, types) -> types.forEach((how, offsets) ->
                tell(role, what, Map.of("at", at.toString(), "how", how, "offsets", offsets))));
    }

    private void begin(KafkaConsumer<String, String> consumer, Collection<TopicPartition> mine) {
        double since = now();
        Map<TopicPartition, OffsetAndMetadata> found = new LinkedHashMap<>();
        patiently(() -> found.putAll(consumer.committed(new HashSet<>(mine))));
        for (TopicPartition each : mine) {
            OffsetAndMetadata saved = found.get(each);
            long offset = saved == null ? -1 : saved.offset();
            consumer.seek(each, Math.max(offset, 0));
            tell("member", "began",
                    Map.of("at", each.toString(), "offset", offset, "group", "members", "since", since));
        }
    }

    private void save(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> positions = new LinkedHashMap<>();
        try {
            for (TopicPartition each : consumer.assignment()) {
                positions.put(each, new OffsetAndMetadata(consumer.position(each, Duration.ofSeconds(5))));
            }
            consumer.commitSync(positions, Duration.ofSeconds(5));
        } catch (CommitFailedException | RetriableException error) {
            // Thrown out of the group, or no answer in time: read again from what was saved.
            return;
        }
        positions.forEach((at, offset) ->
                tell("member", "saved", Map.of("at", at.toString(), "offset", offset.offset(), "group", "members")));
    }

    private static boolean isAtEnd(KafkaConsumer<String, String> consumer) {
        try {
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment(), Duration.ofSeconds(5));
            return !ends.isEmpty() && ends.entrySet().stream()
                    .allMatch(each -> consumer.position(each.getKey(), Duration.ofSeconds(5)) >= each.getValue());
        } catch (TimeoutException error) {
            return false;
        }
    }

    // What roles share

    private void send(
            KafkaProducer<String, String> producer, String role, String topic, int partition, int number, String transaction) {
        String value = name + "-" + role + ":" + partition + ":" + number;
        String at = topic + "-" + partition;
        Map<String, Object> sent = new LinkedHashMap<>(Map.of("at", at, "value", value));
        if (transaction != null) {
            sent.put("transaction", transaction);
        }
        tell(role, "sent", sent);
        producer.send(new ProducerRecord<>(topic, partition, null, value), (where, error) -> {
            if (error == null) {
                tell(role, "acked", Map.of("at", at, "value", value, "offset", where.offset()));
            } else {
                tell(role, "failed", Map.of("at", at, "value", value, "error", error.toString()));
            }
        });
    }

    private void poll(KafkaConsumer<String, String> consumer, String role, String group) {
        ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(100));
        if (found.isEmpty()) {
            return;
        }
        List<List<Object>> records = new ArrayList<>();
        for (ConsumerRecord<String, String> each : found) {
            records.add(List.of(each.topic() + "-" + each.partition(), each.offset(), each.value()));
        }
        tell(role, "read", group == null ? Map.of("records", records) : Map.of("records", records, "group", group));
    }

    private Properties producing() {
        Properties settings = settings();
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("acks", "all");
        settings.put("enable.idempotence", true);
        return settings;
    }

    private Properties consuming(String group) {
        Properties settings = settings();
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("group.id", group);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        return settings;
    }

    /** A client that is to find the next leader soon must not wait half a minute for the last one. */
    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", name);
        settings.put("request.timeout.ms", 3000);
        settings.put("socket.connection.setup.timeout.ms", 2000);
        settings.put("socket.connection.setup.timeout.max.ms", 4000);
        settings.put("reconnect.backoff.ms", 50);
        settings.put("reconnect.backoff.max.ms", 500);
        settings.put("retry.backoff.ms", 50);
        settings.putAll(options);
        return settings;
    }

    /** Again while the library says that trying again may help. */
    private static void patiently(Runnable call) {
        long deadline = System.nanoTime() + GIVE_UP_MS * 1_000_000L;
        while (true) {
            try {
                call.run();
                return;
            } catch (RetriableException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
            }
        }
    }

    private static boolean waited(CountDownLatch latch) {
        try {
            return latch.await(PAUSE_MS, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private void tell(String role, String what, Map<String, ?> more) {
        Map<String, Object> line = new LinkedHashMap<>();
        try {
            synchronized (history) {
                line.put("t", now());
                line.put("who", name + "-" + role);
                line.put("what", what);
                line.putAll(more);
                history.write(JSON.writeValueAsString(line));
                history.write("\n");
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
