import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** The commands about groups: members of either protocol, each in a thread of its own, and committed offsets. */
final class Groups {
    private static final long TIMEOUT_S = 30;
    private static final String SESSION_TIMEOUT_MS = "15000";
    private static final String HEARTBEAT_MS = "300";
    private static final String METADATA_AGE_MS = "500";
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final String bootstrap;
    private final Admin admin;
    private final Map<Integer, GroupMember> members = new HashMap<>();

    Groups(String bootstrap, Admin admin) {
        this.bootstrap = bootstrap;
        this.admin = admin;
    }

    /** Whether the command is one about groups, and then it is done. */
    boolean run(JsonNode in, ObjectNode out) throws Exception {
        switch (in.get("command").asText()) {
            case "join_group" -> members.put(in.get("id").asInt(), joined(in));
            case "member" -> member(in).tell(out);
            case "commit_offsets" -> commitOffsets(in);
            case "committed_offsets" -> committedOffsets(in, out);
            case "seek" -> member(in).call(consumer ->
                consumer.seek(at(in.get("topic"), in.get("partition")), in.get("offset").asLong()));
            case "leave_group" -> member(in).leave();
            default -> {
                return false;
            }
        }
        return true;
    }

    private GroupMember member(JsonNode in) {
        return members.get(in.get("id").asInt());
    }

    private GroupMember joined(JsonNode in) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", in.get("group").asText());
        settings.put("group.protocol", in.get("protocol").asText());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", in.get("reset").asText());
        settings.put("metadata.max.age.ms", METADATA_AGE_MS);
        boolean classic = in.get("protocol").asText().equals("classic");
        if (classic) {
            settings.put("partition.assignment.strategy", ASSIGNORS.get(in.get("assignor").asText()));
            settings.put("session.timeout.ms", SESSION_TIMEOUT_MS);
            settings.put("heartbeat.interval.ms", HEARTBEAT_MS);
        } else {
            settings.put("group.remote.assignor", in.get("assignor").asText());
        }
        if (!in.get("instance").isNull()) {
            settings.put("group.instance.id", in.get("instance").asText());
        }
        GroupMember member = new GroupMember(settings, in.get("commits").asBoolean());
        if (in.get("topics").isNull()) {
            member.subscribe(in.get("pattern").asText(), !classic);
        } else {
            List<String> topics = new ArrayList<>();
            in.get("topics").forEach(each -> topics.add(each.asText()));
            member.subscribe(topics);
        }
        member.start();
        return member;
    }

    private void commitOffsets(JsonNode in) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode row : in.get("offsets")) {
            offsets.put(at(row.get(0), row.get(1)), new OffsetAndMetadata(row.get(2).asLong(), row.get(3).asText()));
        }
        member(in).call(consumer -> consumer.commitSync(offsets));
    }

    private void committedOffsets(JsonNode in, ObjectNode out) throws Exception {
        List<TopicPartition> wanted = new ArrayList<>();
        in.get("wanted").forEach(each -> wanted.add(at(in.get("topic"), each)));
        String group = in.get("group").asText();
        Map<TopicPartition, OffsetAndMetadata> found =
            admin.listConsumerGroupOffsets(Map.of(group, new ListConsumerGroupOffsetsSpec().topicPartitions(wanted)))
                .partitionsToOffsetAndMetadata(group).get(TIMEOUT_S, TimeUnit.SECONDS);
        ArrayNode rows = out.putArray("offsets");
        for (TopicPartition each : wanted) {
            OffsetAndMetadata offset = found.get(each);
            rows.addArray().add(each.partition()).add(offset == null ? -1 : offset.offset())
                .add(offset == null ? "" : offset.metadata());
        }
    }

    private static TopicPartition at(JsonNode topic, JsonNode partition) {
        return new TopicPartition(topic.asText(), partition.asInt());
    }
}
