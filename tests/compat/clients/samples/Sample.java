import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What the samples of docs/queues.md take for granted; they are put where their names stand. */
public final class Sample {
    private static final KafkaProducer<String, String> producer = new KafkaProducer<>(
        Map.of("bootstrap.servers", "localhost:9092"), new StringSerializer(), new StringSerializer());
    private static final KafkaConsumer<String, String> consumer = consumer("billing");
    private static final KafkaConsumer<String, String> checks = consumer("payments");

    public static void main(String[] arguments) throws Exception {
        delay();
        half();
        new Thread(() -> {
            try {
                answers();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }).start();
        retry();
    }

    private static KafkaConsumer<String, String> consumer(String group) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", "localhost:9092",
            "group.id", group,
            "enable.auto.commit", false,
            "auto.offset.reset", "earliest");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static boolean pay(String order) {
        return true;
    }

    private static boolean isPaid(String order) {
        return !order.equals("order-unpaid");
    }

    private static void process(ConsumerRecord<String, String> record) throws Exception {
        System.out.println(record.topic() + " " + record.value());
        if (record.topic().equals("orders")) {
            throw new Exception("out of stock");
        }
    }

    private static void delay() throws Exception {
// delay
    }

    private static void half() throws Exception {
// half
    }

    private static void answers() throws Exception {
// answers
    }

    private static void retry() throws Exception {
// retry
    }
}
