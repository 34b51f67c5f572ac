import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions one after another by the Java producer with its default settings: a number of records, then a commit.
 *
 * Arguments: bootstrap, topic, transactional id, records in a transaction, bytes of a record, seconds of warming up,
 * seconds that are measured. Prints one JSON object.
 */
public final class TransactionLoad {
    private static long transactions;

    private TransactionLoad() {}

    public static void main(String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("transactional.id", words[2]);
        int records = Integer.parseInt(words[3]);
        byte[] value = new byte[Integer.parseInt(words[4])];
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            run(producer, words[1], records, value, Double.parseDouble(words[5]));
            transactions = 0;
            double seconds = run(producer, words[1], records, value, Double.parseDouble(words[6]));
            System.out.printf(
                    Locale.ROOT,
                    "{\"seconds\": %.6f, \"requests\": %d, \"records\": %d, \"bytes\": %d}%n",
                    seconds, transactions, transactions * records, transactions * records * value.length);
        }
    }

    private static double run(
            KafkaProducer<byte[], byte[]> producer, String topic, int records, byte[] value, double seconds) {
        long start = System.nanoTime();
        long end = start + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            producer.beginTransaction();
            for (int at = 0; at < records; at++) {
                producer.send(new ProducerRecord<>(topic, value));
            }
            producer.commitTransaction();
            transactions++;
        }
        return (System.nanoTime() - start) / 1e9;
    }
}
