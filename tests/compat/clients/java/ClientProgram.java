import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java clients as a client program: JSON commands from stdin, answers to stdout.
 *
 * One source for every version of the clients; all settings that are not asked for are the library's defaults.
 */
public final class ClientProgram {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long TIMEOUT_S = 75;

    private final String bootstrap;
    private final Admin admin;
    private final Map<Integer, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    private final Groups groups;
    private final Transactions transactions;

    private ClientProgram(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(settings());
        this.groups = new Groups(bootstrap, admin);
        this.transactions = new Transactions(bootstrap, producers, consumers);
    }

    /** Answers until the input ends. */
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        ClientProgram program = new ClientProgram(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                program.run(JSON.readTree(line), answer);
            } catch (Throwable error) {
                error.printStackTrace();
                Throwable cause = causeOf(error);
                Errors known = Errors.forException(cause);
                ObjectNode problem = JSON.createObjectNode().put("text", cause.toString());
                problem.put("code", known == Errors.UNKNOWN_SERVER_ERROR ? null : (Short) known.code());
                answer = JSON.createObjectNode();
                answer.set("error", problem);
            }
            answers.print(JSON.writeValueAsString(answer) + "\n");
            answers.flush();
        }
        System.exit(0);
    }

    private void run(JsonNode in, ObjectNode out) throws Exception {
        switch (in.get("command").asText()) {
            case "open_producer" -> openProducer(in);
            case "send" -> send(in, out);
            case "close_producer" -> producers.remove(in.get("id").asInt()).close(Duration.ofSeconds(1));
            case "open_consumer" -> openConsumer(in);
            case "poll" -> poll(in, out);
            case "close_consumer" -> consumers.remove(in.get("id").asInt()).close(Duration.ofSeconds(1));
            case "create_topic" -> createTopic(in);
            case "delete_topic" -> wait(admin.deleteTopics(List.of(topic(in))).all());
            case "list_topics" -> wait(admin.listTopics().names()).forEach(out.putArray("topics")::add);
            case "describe_topic" -> describeTopic(in, out);
            case "create_partitions" -> wait(
                admin.createPartitions(Map.of(topic(in), NewPartitions.increaseTo(in.get("count").asInt()))).all());
            case "describe_configs" -> describeConfigs(in, out);
            case "alter_configs" -> alterConfigs(in);
            case "find_offset" -> findOffset(in, out);
            case "delete_records" -> deleteRecords(in, out);
            case "describe_cluster" -> describeCluster(out);
            case "log_dirs" -> logDirs(out);
            default -> {
                if (!groups.run(in, out) && !transactions.run(in)) {
                    throw new IllegalArgumentException("unknown command: " + in);
                }
            }
        }
    }

    private void openProducer(JsonNode in) {
        Properties settings = settings(in);
        settings.put("compression.type", in.get("codec").asText());
        if (!in.get("idempotent").isNull()) {
            settings.put("enable.idempotence", in.get("idempotent").asText());
        }
        if (!in.get("request_bytes_max").isNull()) {
            settings.put("max.request.size", in.get("request_bytes_max").asText());
        }
        ByteArraySerializer bytes = new ByteArraySerializer();
        producers.put(in.get("id").asInt(), new KafkaProducer<>(settings, bytes, bytes));
    }

    private void send(JsonNode in, ObjectNode out) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(in.get("id").asInt());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode row : in.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : row.get("headers")) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            Integer partition = row.get("partition").isNull() ? null : (Integer) row.get("partition").asInt();
            Long timestamp = row.get("timestamp").isNull() ? null : (Long) row.get("timestamp").asLong();
            sent.add(producer.send(new ProducerRecord<>(
                topic(in), partition, timestamp, bytes(row.get("key")), bytes(row.get("value")), headers)));
        }
        ArrayNode acks = out.putArray("acks");
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata found = each.get(TIMEOUT_S, TimeUnit.SECONDS);
            acks.addArray().add(found.partition()).add(found.offset());
        }
    }

    private void openConsumer(JsonNode in) {
        Properties settings = settings(in);
        settings.put("auto.offset.reset", in.get("reset").asText());
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes);
        Map<TopicPartition, Long> positions = new HashMap<>();
        for (JsonNode pair : in.get("positions")) {
            positions.put(new TopicPartition(topic(in), pair.get(0).asInt()), pair.get(1).asLong());
        }
        consumer.assign(positions.keySet());
        positions.forEach((at, offset) -> {
            if (offset >= 0) {
                consumer.seek(at, offset);
            } else if (offset == -2) {
                consumer.seekToBeginning(List.of(at));
            } else {
                consumer.seekToEnd(List.of(at));
                consumer.position(at);
            }
        });
        consumers.put(in.get("id").asInt(), consumer);
    }

    private void poll(JsonNode in, ObjectNode out) {
        ArrayNode rows = out.putArray("records");
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(in.get("timeout_ms").asLong());
        while (rows.size() < in.get("count").asInt() && System.nanoTime() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record :
                    consumers.get(in.get("id").asInt()).poll(Duration.ofMillis(200))) {
                ObjectNode row = rows.addObject();
                row.put("partition", record.partition()).put("offset", record.offset());
                row.put("timestamp", record.timestamp());
                row.put("key", text(record.key())).put("value", text(record.value()));
                ArrayNode headers = row.putArray("headers");
                record.headers().forEach(each -> headers.addArray().add(each.key()).add(text(each.value())));
            }
        }
    }

    private void createTopic(JsonNode in) throws Exception {
        Map<String, String> configs = new HashMap<>();
        in.get("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        NewTopic topic = new NewTopic(topic(in), in.get("partitions").asInt(), (short) 1).configs(configs);
        wait(admin.createTopics(List.of(topic)).all());
    }

    private void describeTopic(JsonNode in, ObjectNode out) throws Exception {
        ArrayNode partitions = out.putArray("partitions");
        for (TopicPartitionInfo each :
                wait(admin.describeTopics(List.of(topic(in))).allTopicNames()).get(topic(in)).partitions()) {
            ArrayNode row = partitions.addArray().add(each.partition()).add(each.leader().id());
            addIds(row.addArray(), each.replicas());
            addIds(row.addArray(), each.isr());
        }
    }

    private void describeConfigs(JsonNode in, ObjectNode out) throws Exception {
        ConfigResource.Type kind = ConfigResource.Type.valueOf(in.get("kind").asText().toUpperCase());
        ConfigResource resource = new ConfigResource(kind, in.get("name").asText());
        ObjectNode configs = out.putObject("configs");
        wait(admin.describeConfigs(List.of(resource)).all()).get(resource).entries()
            .forEach(each -> configs.put(each.name(), each.value()));
    }

    private void alterConfigs(JsonNode in) throws Exception {
        Collection<AlterConfigOp> operations = new ArrayList<>();
        in.get("configs").fields().forEachRemaining(each -> operations.add(new AlterConfigOp(
            new ConfigEntry(each.getKey(), each.getValue().asText()), AlterConfigOp.OpType.SET)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(in));
        wait(admin.incrementalAlterConfigs(Map.of(resource, operations)).all());
    }

    private void findOffset(JsonNode in, ObjectNode out) throws Exception {
        JsonNode at = in.get("at");
        OffsetSpec spec = at.isNumber() ? OffsetSpec.forTimestamp(at.asLong())
            : switch (at.asText()) {
                case "earliest" -> OffsetSpec.earliest();
                case "latest" -> OffsetSpec.latest();
                default -> OffsetSpec.maxTimestamp();
            };
        ListOffsetsResult.ListOffsetsResultInfo found =
            wait(admin.listOffsets(Map.of(where(in), spec)).partitionResult(where(in)));
        out.put("offset", found.offset()).put("timestamp", found.timestamp());
    }

    private void deleteRecords(JsonNode in, ObjectNode out) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(in.get("offset").asLong());
        out.put("low_watermark",
            wait(admin.deleteRecords(Map.of(where(in), before)).lowWatermarks().get(where(in))).lowWatermark());
    }

    private void describeCluster(ObjectNode out) throws Exception {
        DescribeClusterResult found = admin.describeCluster();
        out.put("cluster_id", wait(found.clusterId())).put("controller", wait(found.controller()).id());
        ArrayNode brokers = out.putArray("brokers");
        wait(found.nodes()).forEach(each -> brokers.addArray().add(each.id()).add(each.host()).add(each.port()));
    }

    private void logDirs(ObjectNode out) throws Exception {
        List<Integer> brokers = wait(admin.describeCluster().nodes()).stream().map(Node::id).toList();
        ObjectNode sizes = out.putObject("sizes");
        for (Map<String, LogDirDescription> folders :
                wait(admin.describeLogDirs(brokers).allDescriptions()).values()) {
            folders.values().forEach(folder ->
                folder.replicaInfos().forEach((at, replica) -> sizes.put(at.toString(), replica.size())));
        }
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    /** Settings of a client of another listener, if the command asks for one. */
    private Properties settings(JsonNode in) {
        Properties settings = settings();
        Logins.add(in.get("login"), settings);
        return settings;
    }

    private static void addIds(ArrayNode row, List<Node> brokers) {
        brokers.forEach(each -> row.add(each.id()));
    }

    private static String topic(JsonNode in) {
        return in.get("topic").asText();
    }

    private static TopicPartition where(JsonNode in) {
        return new TopicPartition(topic(in), in.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] data) {
        return Optional.ofNullable(data).map(Base64.getEncoder()::encodeToString).orElse(null);
    }

    private static <T> T wait(Future<T> answer) throws Exception {
        return answer.get(TIMEOUT_S, TimeUnit.SECONDS);
    }

    private static Throwable causeOf(Throwable error) {
        boolean wrapped = error instanceof ExecutionException || error instanceof CompletionException;
        return wrapped && error.getCause() != null ? error.getCause() : error;
    }
}
