import java.util.List;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.share.generated.*;

/** Prints records of share groups and of the share coordinator as Kafka's own classes serialize them. */
public class ShareGroupRecords {
    static final Uuid FOO = Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAQ");

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) text.append(String.format("%02x", b));
        return text.toString();
    }

    static void print(String name, ApiMessage key, ApiMessage value) {
        String written = value == null ? "null" : hex(MessageUtil.toVersionPrefixedBytes((short) 0, value));
        System.out.println(name + " " + hex(MessageUtil.toCoordinatorTypePrefixedBytes(key)) + " " + written);
    }

    public static void main(String[] args) {
        print("epoch", new ShareGroupMetadataKey().setGroupId("группа"),
            new ShareGroupMetadataValue().setEpoch(7).setMetadataHash(-42L));
        print("epoch-tombstone", new ShareGroupMetadataKey().setGroupId("g"), null);
        ShareGroupMemberMetadataKey member = new ShareGroupMemberMetadataKey().setGroupId("g").setMemberId("m");
        print("member", member, new ShareGroupMemberMetadataValue().setRackId("r").setClientId("c").setClientHost("/h")
            .setSubscribedTopicNames(List.of("a", "b")));
        print("member-plain", member, new ShareGroupMemberMetadataValue().setRackId(null).setClientId("")
            .setClientHost("").setSubscribedTopicNames(List.of()));
        print("target-epoch", new ShareGroupTargetAssignmentMetadataKey().setGroupId("g"),
            new ShareGroupTargetAssignmentMetadataValue().setAssignmentEpoch(3).setAssignmentTimestamp(1700000000000L));
        print("target-epoch-no-time", new ShareGroupTargetAssignmentMetadataKey().setGroupId("g"),
            new ShareGroupTargetAssignmentMetadataValue().setAssignmentEpoch(3));
        print("target", new ShareGroupTargetAssignmentMemberKey().setGroupId("g").setMemberId("m"),
            new ShareGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
                new ShareGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(FOO).setPartitions(List.of(0, 2)))));
        print("current", new ShareGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m"),
            new ShareGroupCurrentMemberAssignmentValue().setMemberEpoch(5).setPreviousMemberEpoch(4).setState((byte) 0)
                .setAssignedPartitions(List.of(new ShareGroupCurrentMemberAssignmentValue.TopicPartitions()
                    .setTopicId(FOO).setPartitions(List.of(1)))));
        print("states", new ShareGroupStatePartitionMetadataKey().setGroupId("g"),
            new ShareGroupStatePartitionMetadataValue()
                .setInitializingTopics(List.of(new ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo()
                    .setTopicId(FOO).setTopicName("foo").setPartitions(List.of(1, 2))))
                .setInitializedTopics(List.of(new ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo()
                    .setTopicId(FOO).setTopicName("foo").setPartitions(List.of(0))))
                .setDeletingTopics(List.of(new ShareGroupStatePartitionMetadataValue.TopicInfo()
                    .setTopicId(FOO).setTopicName("foo"))));

        ShareSnapshotKey snapshot = new ShareSnapshotKey().setGroupId("g").setTopicId(FOO).setPartition(3);
        print("snapshot", snapshot, new ShareSnapshotValue().setSnapshotEpoch(1).setStateEpoch(2).setLeaderEpoch(3)
            .setStartOffset(10).setDeliveryCompleteCount(4).setCreateTimestamp(1700000000000L)
            .setWriteTimestamp(1700000000001L).setStateBatches(List.of(
                new ShareSnapshotValue.StateBatch().setFirstOffset(11).setLastOffset(12).setDeliveryState((byte) 2)
                    .setDeliveryCount((short) 1),
                new ShareSnapshotValue.StateBatch().setFirstOffset(13).setLastOffset(13).setDeliveryState((byte) 0)
                    .setDeliveryCount((short) 2))));
        print("snapshot-new", snapshot, new ShareSnapshotValue().setSnapshotEpoch(0).setStateEpoch(2).setLeaderEpoch(0)
            .setStartOffset(-1).setDeliveryCompleteCount(-1).setCreateTimestamp(1).setWriteTimestamp(1)
            .setStateBatches(List.of()));
        print("snapshot-tombstone", snapshot, null);
        print("update", new ShareUpdateKey().setGroupId("g").setTopicId(FOO).setPartition(3),
            new ShareUpdateValue().setSnapshotEpoch(1).setLeaderEpoch(3).setStartOffset(-1).setDeliveryCompleteCount(5)
                .setStateBatches(List.of(new ShareUpdateValue.StateBatch().setFirstOffset(14).setLastOffset(20)
                    .setDeliveryState((byte) 4).setDeliveryCount((short) 5))));
    }
}
