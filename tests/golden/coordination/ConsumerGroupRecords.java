import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.*;

/** Prints records of server-side groups as Kafka's own classes serialize them: a name, key and value in hexadecimal. */
public class ConsumerGroupRecords {
    static final Uuid FOO = Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAQ");
    static final Uuid BAR = new Uuid(-2L, 0x0123456789abcdefL);

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) text.append(String.format("%02x", b));
        return text.toString();
    }

    static void print(String name, ApiMessage key, ApiMessage value) {
        String written = value == null ? "null" : hex(MessageUtil.toVersionPrefixedBytes((short) 0, value));
        System.out.println(name + " " + hex(MessageUtil.toCoordinatorTypePrefixedBytes(key)) + " " + written);
    }

    static List<Integer> numbers(int... numbers) {
        List<Integer> list = new ArrayList<>();
        for (int number : numbers) list.add(number);
        return list;
    }

    static ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions held(Uuid topic, List<Integer> partitions, List<Integer> since) {
        return new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions()
            .setTopicId(topic).setPartitions(partitions).setAssignmentEpochs(since);
    }

    public static void main(String[] args) {
        ConsumerGroupMetadataKey group = new ConsumerGroupMetadataKey().setGroupId("группа");
        print("epoch", group, new ConsumerGroupMetadataValue().setEpoch(7).setMetadataHash(-42L));
        print("epoch-no-hash", group, new ConsumerGroupMetadataValue().setEpoch(1));
        print("epoch-tombstone", group, null);

        ConsumerGroupPartitionMetadataKey metadata = new ConsumerGroupPartitionMetadataKey().setGroupId("g");
        print("partition-metadata", metadata, new ConsumerGroupPartitionMetadataValue().setTopics(List.of(
            new ConsumerGroupPartitionMetadataValue.TopicMetadata().setTopicId(FOO).setTopicName("foo").setNumPartitions(3))));
        print("partition-metadata-tombstone", metadata, null);

        ConsumerGroupMemberMetadataKey member = new ConsumerGroupMemberMetadataKey().setGroupId("g").setMemberId("m1");
        print("member", member, new ConsumerGroupMemberMetadataValue().setInstanceId("i1").setRackId("r1")
            .setClientId("client").setClientHost("/127.0.0.1").setSubscribedTopicNames(List.of("bar", "foo"))
            .setSubscribedTopicRegex("b.*").setRebalanceTimeoutMs(300000).setServerAssignor("uniform"));
        print("member-plain", member, new ConsumerGroupMemberMetadataValue().setInstanceId(null).setRackId(null)
            .setClientId("").setClientHost("").setSubscribedTopicNames(List.of())
            .setSubscribedTopicRegex(null).setServerAssignor(null));
        print("member-classic", member, new ConsumerGroupMemberMetadataValue().setInstanceId(null).setRackId(null)
            .setClientId("c").setClientHost("/h").setSubscribedTopicNames(List.of("foo"))
            .setSubscribedTopicRegex("").setRebalanceTimeoutMs(60000).setServerAssignor(null)
            .setClassicMemberMetadata(new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata()
                .setSessionTimeoutMs(45000).setSupportedProtocols(List.of(
                    new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("range").setMetadata(new byte[]{0, 1, 2}),
                    new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("sticky").setMetadata(new byte[]{})))));
        print("member-tombstone", member, null);

        ConsumerGroupTargetAssignmentMetadataKey targets = new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("g");
        print("target-epoch", targets, new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(9).setAssignmentTimestamp(1700000000123L));
        print("target-epoch-no-time", targets, new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(9));
        print("target-epoch-tombstone", targets, null);

        ConsumerGroupTargetAssignmentMemberKey target = new ConsumerGroupTargetAssignmentMemberKey().setGroupId("g").setMemberId("m1");
        print("target", target, new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
            new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(FOO).setPartitions(numbers(0, 2, 300)),
            new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(BAR).setPartitions(numbers(1)))));
        print("target-empty", target, new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of()));
        print("target-tombstone", target, null);

        ConsumerGroupCurrentMemberAssignmentKey current = new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m1");
        print("current", current, new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(9).setPreviousMemberEpoch(8).setState((byte) 1)
            .setAssignedPartitions(List.of(held(FOO, numbers(0, 2), numbers(9, 4))))
            .setPartitionsPendingRevocation(List.of(held(BAR, numbers(5), numbers(3)))));
        print("current-old", current, new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(9).setPreviousMemberEpoch(8).setState((byte) 0)
            .setAssignedPartitions(List.of(held(FOO, numbers(0, 2), null))).setPartitionsPendingRevocation(List.of()));
        print("current-future", current, new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(-2).setPreviousMemberEpoch(8).setState((byte) 99)
            .setAssignedPartitions(List.of()).setPartitionsPendingRevocation(List.of()));
        print("current-tombstone", current, null);

        ConsumerGroupRegularExpressionKey regex = new ConsumerGroupRegularExpressionKey().setGroupId("g").setRegularExpression("ba[rz].*");
        print("regex", regex, new ConsumerGroupRegularExpressionValue().setTopics(List.of("bar", "baz")).setVersion(77).setTimestamp(1700000000123L));
        print("regex-tombstone", regex, null);
    }
}
