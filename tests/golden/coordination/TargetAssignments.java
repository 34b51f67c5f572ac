import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Adds to each group of a file, one on each line, what Kafka's own assignors make of it. Topics are small numbers. */
public class TargetAssignments {
    static Uuid topic(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    static ObjectNode assign(ConsumerGroupPartitionAssignor assignor, JsonNode group, ObjectMapper json) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        group.get("members").fields().forEachRemaining(entry -> {
            Set<Uuid> subscribed = new HashSet<>();
            entry.getValue().get("topics").forEach(number -> subscribed.add(topic(number.asText())));
            Map<Uuid, Set<Integer>> last = new HashMap<>();
            entry.getValue().get("last").fields().forEachRemaining(held -> held.getValue().forEach(partition -> {
                last.computeIfAbsent(topic(held.getKey()), __ -> new HashSet<>()).add(partition.asInt());
                owners.computeIfAbsent(topic(held.getKey()), __ -> new HashMap<>()).put(partition.asInt(), entry.getKey());
            }));
            JsonNode instance = entry.getValue().get("instance");
            members.put(entry.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance.isNull() ? Optional.empty() : Optional.of(instance.asText()),
                subscribed, new Assignment(last)));
            subscriptions.add(subscribed);
        });
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) {
                return group.get("counts").get(Long.toString(id.getLeastSignificantBits())).asInt();
            }

            public Set<String> racksForPartition(Uuid id, int partition) {
                return Set.of();
            }
        };
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ObjectNode answer = json.createObjectNode();
        new TreeMap<>(assignor.assign(new GroupSpecImpl(members, type, owners), describer).members()).forEach((id, target) -> {
            ObjectNode given = answer.putObject(id);
            target.partitions().forEach((topicId, partitions) -> {
                if (!partitions.isEmpty()) {
                    given.set(Long.toString(topicId.getLeastSignificantBits()), json.valueToTree(new TreeSet<>(partitions)));
                }
            });
        });
        return answer;
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            ObjectNode group = (ObjectNode) json.readTree(line);
            group.set("range", assign(new RangeAssignor(), group, json));
            group.set("uniform", assign(new UniformAssignor(), group, json));
            System.out.println(json.writeValueAsString(group));
        }
    }
}
