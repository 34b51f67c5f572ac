import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.FencedMemberEpochException;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.MemberState;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder;

/** Adds to each member of a file, one on each line, the step that Kafka lets it take. A topic's name is its id's number. */
public class Reconciliations {
    record Topic(String name, Uuid id) implements CoordinatorMetadataImage.TopicMetadata {
        public int partitionCount() {
            return 100;
        }

        public List<String> partitionRacks(int partition) {
            return List.of();
        }
    }

    /** Every topic exists. */
    static class Image implements CoordinatorMetadataImage {
        public Set<Uuid> topicIds() {
            return Set.of();
        }

        public Set<String> topicNames() {
            return Set.of();
        }

        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.of(new Topic(name, topic(name)));
        }

        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.of(new Topic(Long.toString(id.getLeastSignificantBits()), id));
        }

        public CoordinatorMetadataDelta emptyDelta() {
            return null;
        }

        public long version() {
            return 1;
        }

        public boolean isEmpty() {
            return false;
        }
    }

    static Uuid topic(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    static Map<Uuid, Map<Integer, Integer>> holdings(JsonNode written) {
        Map<Uuid, Map<Integer, Integer>> read = new HashMap<>();
        written.fields().forEachRemaining(entry -> {
            Map<Integer, Integer> epochs = new HashMap<>();
            entry.getValue().fields().forEachRemaining(held -> epochs.put(Integer.parseInt(held.getKey()), held.getValue().asInt()));
            read.put(topic(entry.getKey()), epochs);
        });
        return read;
    }

    static JsonNode written(Map<Uuid, Map<Integer, Integer>> holdings, ObjectMapper json) {
        Map<String, Map<Integer, Integer>> sorted = new TreeMap<>();
        holdings.forEach((id, epochs) -> sorted.put(Long.toString(id.getLeastSignificantBits()), new TreeMap<>(epochs)));
        return json.valueToTree(sorted);
    }

    static JsonNode next(JsonNode given, ObjectMapper json) {
        List<String> names = new ArrayList<>();
        given.get("subscribed").forEach(name -> names.add(name.asText()));
        ConsumerGroupMember member = new ConsumerGroupMember.Builder("m")
            .setState(MemberState.fromValue((byte) given.get("state").asInt()))
            .setMemberEpoch(given.get("epoch").asInt())
            .setPreviousMemberEpoch(given.get("previous").asInt())
            .setSubscribedTopicNames(names)
            .setAssignedPartitions(holdings(given.get("assigned")))
            .setPartitionsPendingRevocation(holdings(given.get("revoking")))
            .build();
        Map<Uuid, Set<Integer>> target = new HashMap<>();
        given.get("target").fields().forEachRemaining(entry -> entry.getValue().forEach(partition ->
            target.computeIfAbsent(topic(entry.getKey()), __ -> new HashSet<>()).add(partition.asInt())));
        Set<String> taken = new HashSet<>();
        given.get("others").fields().forEachRemaining(entry -> entry.getValue().forEach(partition ->
            taken.add(entry.getKey() + "-" + partition.asInt())));
        for (String mine : List.of("assigned", "revoking")) {
            given.get(mine).fields().forEachRemaining(entry -> entry.getValue().fieldNames().forEachRemaining(partition ->
                taken.add(entry.getKey() + "-" + partition)));
        }
        List<ConsumerGroupHeartbeatRequestData.TopicPartitions> owned = null;
        if (!given.get("owned").isNull()) {
            List<ConsumerGroupHeartbeatRequestData.TopicPartitions> reported = new ArrayList<>();
            given.get("owned").fields().forEachRemaining(entry -> {
                List<Integer> partitions = new ArrayList<>();
                entry.getValue().forEach(partition -> partitions.add(partition.asInt()));
                reported.add(new ConsumerGroupHeartbeatRequestData.TopicPartitions().setTopicId(topic(entry.getKey())).setPartitions(partitions));
            });
            owned = reported;
        }
        try {
            ConsumerGroupMember after = new CurrentAssignmentBuilder(member)
                .withMetadataImage(new Image())
                .withTargetAssignment(given.get("targetEpoch").asInt(), new Assignment(target))
                .withHasSubscriptionChanged(given.get("changed").asBoolean())
                .withCurrentPartitionEpoch((id, partition) ->
                    taken.contains(id.getLeastSignificantBits() + "-" + partition) ? 1 : -1)
                .withOwnedTopicPartitions(owned)
                .build();
            ObjectNode answer = json.createObjectNode();
            answer.put("state", after.state().value());
            answer.put("epoch", after.memberEpoch());
            answer.put("previous", after.previousMemberEpoch());
            answer.set("assigned", written(after.assignedPartitions(), json));
            answer.set("revoking", written(after.partitionsPendingRevocation(), json));
            return answer;
        } catch (FencedMemberEpochException fenced) {
            return json.nullNode();
        }
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            ObjectNode given = (ObjectNode) json.readTree(line);
            given.set("next", next(given, json));
            System.out.println(json.writeValueAsString(given));
        }
    }
}
