import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
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
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors, one case per line of standard input: name, topics and members, separated by tabs. Topics are
 * "topic=racks;racks", with the racks of each partition's replicas separated by commas, "-" for a replica without one;
 * members are "id=instance=subscription". All are separated by spaces; "-" is no instance, subscriptions are
 * hexadecimal. Each answer is a line "id=topic:partition,..." with a space between members.
 */
public final class AssignorCases {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t");
            Map<String, List<PartitionInfo>> topics = new HashMap<>();
            for (String topic : fields[1].split(" ")) {
                String[] parts = topic.split("=");
                topics.put(parts[0], partitions(parts[0], parts[1].split(";")));
            }
            Map<String, Subscription> members = new HashMap<>();
            for (String member : fields[2].split(" ")) {
                String[] parts = member.split("=");
                ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
                Subscription subscription = ConsumerProtocol.deserializeSubscription(bytes);
                subscription.setGroupInstanceId(parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]));
                members.put(parts[0], subscription);
            }
            System.out.println(answer(assignor(fields[0]).assignPartitions(topics, members)));
        }
    }

    private static List<PartitionInfo> partitions(String topic, String[] racks) {
        List<PartitionInfo> found = new ArrayList<>();
        for (int partition = 0; partition < racks.length; partition++) {
            String[] names = racks[partition].split(",");
            Node[] replicas = new Node[names.length];
            for (int at = 0; at < names.length; at++) {
                replicas[at] = new Node(at, "host", 9092, names[at].equals("-") ? null : names[at]);
            }
            found.add(new PartitionInfo(topic, partition, replicas[0], replicas, replicas));
        }
        return found;
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
