import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions of Kafka's own clients: producing, offsets inside them, and readers of either isolation.
 *
 * Producers and consumers are those of the program, so that it sends, polls and closes them.
 */
final class Transactions {
    private static final long TIMEOUT_S = 75;

    private final String bootstrap;
    private final Map<Integer, KafkaProducer<byte[], byte[]>> producers;
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> consumers;

    Transactions(
            String bootstrap,
            Map<Integer, KafkaProducer<byte[], byte[]>> producers,
            Map<Integer, KafkaConsumer<byte[], byte[]>> consumers) {
        this.bootstrap = bootstrap;
        this.producers = producers;
        this.consumers = consumers;
    }

    /** Whether the command is one about transactions, and then it is done. */
    boolean run(JsonNode in) {
        switch (in.get("command").asText()) {
            case "open_transactional" -> producers.put(in.get("id").asInt(), initialised(in));
            case "begin_transaction" -> producer(in).beginTransaction();
            case "commit_transaction" -> producer(in).commitTransaction();
            case "abort_transaction" -> producer(in).abortTransaction();
            case "send_offsets" -> sendOffsets(in);
            case "open_isolated_consumer" -> openIsolatedConsumer(in);
            case "transform" -> transform(in);
            default -> {
                return false;
            }
        }
        return true;
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode in) {
        return producers.get(in.get("id").asInt());
    }

    private KafkaProducer<byte[], byte[]> initialised(JsonNode in) {
        Properties settings = settings();
        settings.put("transactional.id", in.get("transactional_id").asText());
        if (in.hasNonNull("transaction_timeout_ms")) {
            settings.put("transaction.timeout.ms", in.get("transaction_timeout_ms").asText());
        }
        ByteArraySerializer bytes = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes);
        producer.initTransactions();
        return producer;
    }

    private void sendOffsets(JsonNode in) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode row : in.get("offsets")) {
            TopicPartition at = new TopicPartition(row.get(0).asText(), row.get(1).asInt());
            offsets.put(at, new OffsetAndMetadata(row.get(2).asLong()));
        }
        producer(in).sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(in.get("group").asText()));
    }

    private void openIsolatedConsumer(JsonNode in) {
        Properties settings = settings();
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", in.get("committed").asBoolean() ? "read_committed" : "read_uncommitted");
        if (in.hasNonNull("fetch_wait_ms")) {
            settings.put("fetch.max.wait.ms", in.get("fetch_wait_ms").asText());
        }
        KafkaConsumer<byte[], byte[]> consumer = consumer(settings);
        Map<TopicPartition, Long> positions = new HashMap<>();
        for (JsonNode pair : in.get("positions")) {
            positions.put(new TopicPartition(in.get("topic").asText(), pair.get(0).asInt()), pair.get(1).asLong());
        }
        consumer.assign(positions.keySet());
        positions.forEach((at, offset) -> {
            if (offset >= 0) {
                consumer.seek(at, offset);
            }
        });
        consumers.put(in.get("id").asInt(), consumer);
    }

    private void transform(JsonNode in) {
        Properties settings = settings();
        settings.put("group.id", in.get("group").asText());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "1"); // so that the positions say what was taken
        try (KafkaProducer<byte[], byte[]> producer = initialised(in);
                KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.subscribe(List.of(in.get("source").asText()));
            List<ConsumerRecord<byte[], byte[]>> found = consume(consumer, in.get("count").asInt());
            producer.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> record : found) {
                String value = new String(record.value(), StandardCharsets.UTF_8) + "!";
                producer.send(new ProducerRecord<>(
                    in.get("target").asText(), record.partition(), record.key(),
                    value.getBytes(StandardCharsets.UTF_8)));
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            consumer.assignment().forEach(at -> offsets.put(at, new OffsetAndMetadata(consumer.position(at))));
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (in.get("commit").asBoolean()) {
                producer.commitTransaction();
            } else {
                producer.flush();
                producer.abortTransaction();
            }
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> consume(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (found.size() < count) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(found.size() + " of " + count + " records came");
            }
            consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        }
        return found;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Properties settings) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        return new KafkaConsumer<>(settings, bytes, bytes);
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }
}
