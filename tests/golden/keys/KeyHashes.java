import java.util.Random;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/** Prints keys, their murmur2 and their partitions of 7 and of 1000, as Kafka's Java client computes them. */
public class KeyHashes {
    public static void main(String[] args) {
        Random random = new Random(42);
        System.out.println("[");
        for (int number = 0; number < 600; number++) {
            byte[] key = new byte[number < 100 ? number / 2 : random.nextInt(200)];
            random.nextBytes(key);
            StringBuilder hex = new StringBuilder();
            for (byte each : key) hex.append(String.format("%02x", each));
            System.out.printf("[\"%s\", %d, %d, %d]%s%n", hex, Utils.murmur2(key),
                BuiltInPartitioner.partitionForKey(key, 7), BuiltInPartitioner.partitionForKey(key, 1000),
                number < 599 ? "," : "");
        }
        System.out.println("]");
    }
}
