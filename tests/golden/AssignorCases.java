import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors, one case per line of standard input: name, topics and members, separated by tabs. Topics are
 * "topic=partitions", members "id=instance=subscription", separated by spaces; "-" is no instance, subscriptions are
 * hexadecimal. Each answer is a line "id=topic:partition,..." with a space between members.
 */
public final class AssignorCases {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t");
            Map<String, Integer> counts = new HashMap<>();
            for (String topic : fields[1].split(" ")) {
                String[] parts = topic.split("=");
                counts.put(parts[0], Integer.parseInt(parts[1]));
            }
            Map<String, Subscription> members = new HashMap<>();
            for (String member : fields[2].split(" ")) {
                String[] parts = member.split("=");
                ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
                Subscription subscription = ConsumerProtocol.deserializeSubscription(bytes);
                subscription.setGroupInstanceId(parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]));
                members.put(parts[0], subscription);
            }
            System.out.println(answer(assignor(fields[0]).assign(counts, members)));
        }
    }

    private static AbstractPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private static String answer(Map<String, List<TopicPartition>> assignment) {
        StringBuilder text = new StringBuilder();
        new TreeMap<>(assignment).forEach((member, partitions) -> {
            text.append(text.length() == 0 ? "" : " ").append(member).append('=');
            for (int at = 0; at < partitions.size(); at++) {
                TopicPartition partition = partitions.get(at);
                text.append(at == 0 ? "" : ",").append(partition.topic()).append(':').append(partition.partition());
            }
        });
        return text.toString();
    }
}
