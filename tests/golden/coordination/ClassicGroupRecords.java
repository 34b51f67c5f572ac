import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocol;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocolCollection;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.OffsetAndMetadata;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.classic.ClassicGroupMember;
import org.apache.kafka.coordinator.group.classic.ClassicGroupState;
import org.apache.kafka.coordinator.group.generated.*;

/**
 * Prints records of classic groups and offsets as Kafka's own classes serialize them: a name, key and value in hexadecimal.
 * Those named "kafka-..." are made by the very functions that Kafka's coordinator calls, so they show which versions it
 * writes; the others are every version that it can read.
 */
public class ClassicGroupRecords {
    static final Uuid TOPIC_ID = new Uuid(0x0123456789abcdefL, -2L);

    static String hex(byte[] bytes) {
        if (bytes == null) return "null";
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) text.append(String.format("%02x", b));
        return text.toString();
    }

    static void print(String name, ApiMessage key, ApiMessage value, int version) {
        System.out.println(name + " " + hex(MessageUtil.toCoordinatorTypePrefixedBytes(key)) + " "
            + hex(MessageUtil.toVersionPrefixedBytes((short) version, value)));
    }

    static void print(String name, CoordinatorRecord record) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        System.out.println(name + " " + hex(serde.serializeKey(record)) + " " + hex(serde.serializeValue(record)));
    }

    static void offsets() {
        LegacyOffsetCommitKey legacy = new LegacyOffsetCommitKey().setGroup("группа").setTopic("foo").setPartition(3);
        print("legacy-offset", legacy, new LegacyOffsetCommitValue()
            .setOffset(42).setMetadata("mé").setCommitTimestamp(1700000000123L), 0);
        OffsetCommitKey key = new OffsetCommitKey().setGroup("группа").setTopic("foo").setPartition(3);
        for (int version = 0; version <= 4; version++) {
            OffsetCommitValue value = new OffsetCommitValue().setOffset(42).setMetadata("mé").setCommitTimestamp(1700000000123L);
            if (version == 1) value.setExpireTimestamp(1700000099999L);
            if (version >= 3) value.setLeaderEpoch(7);
            if (version >= 4) value.setTopicId(TOPIC_ID);
            print("offset-v" + version, key, value, version);
        }
        print("kafka-offset", GroupCoordinatorRecordHelpers.newOffsetCommitRecord("группа", "foo", 3, new OffsetAndMetadata(
            42, OptionalInt.of(7), "mé", 1700000000123L, OptionalLong.empty(), TOPIC_ID)));
        print("kafka-offset-bare", GroupCoordinatorRecordHelpers.newOffsetCommitRecord("g", "t", 0, new OffsetAndMetadata(
            0, OptionalInt.empty(), "", 0, OptionalLong.empty(), Uuid.ZERO_UUID)));
        print("kafka-offset-with-expiry", GroupCoordinatorRecordHelpers.newOffsetCommitRecord("группа", "foo", 3,
            new OffsetAndMetadata(42, OptionalInt.of(7), "mé", 1700000000123L, OptionalLong.of(1700000099999L), TOPIC_ID)));
        print("kafka-offset-tombstone", GroupCoordinatorRecordHelpers.newOffsetCommitTombstoneRecord("группа", "foo", 3));
    }

    static ClassicGroupMember member(String id, String instance, byte[] subscription) {
        JoinGroupRequestProtocolCollection protocols = new JoinGroupRequestProtocolCollection();
        protocols.add(new JoinGroupRequestProtocol().setName("range").setMetadata(subscription));
        return new ClassicGroupMember(id, Optional.ofNullable(instance), "client-" + id, "/127.0.0.1", 300000, 45000,
            "consumer", protocols);
    }

    static void groups() {
        GroupMetadataKey key = new GroupMetadataKey().setGroup("группа");
        for (int version = 0; version <= 4; version++) {
            GroupMetadataValue.MemberMetadata first = new GroupMetadataValue.MemberMetadata().setMemberId("m1")
                .setClientId("c1").setClientHost("/h1").setSessionTimeout(10000)
                .setSubscription(new byte[]{1, 2, 3}).setAssignment(new byte[]{4, 5});
            GroupMetadataValue.MemberMetadata second = new GroupMetadataValue.MemberMetadata().setMemberId("m2")
                .setClientId("").setClientHost("").setSessionTimeout(45000)
                .setSubscription(new byte[0]).setAssignment(new byte[0]);
            if (version >= 1) first.setRebalanceTimeout(60000);
            if (version >= 1) second.setRebalanceTimeout(300000);
            if (version >= 3) first.setGroupInstanceId("i1");
            GroupMetadataValue value = new GroupMetadataValue().setProtocolType("consumer").setGeneration(9)
                .setProtocol("range").setLeader("m1").setMembers(List.of(first, second));
            if (version >= 2) value.setCurrentStateTimestamp(1700000000123L);
            print("group-v" + version, key, value, version);
        }
        ClassicGroup stable = new ClassicGroup(new LogContext(), "группа", ClassicGroupState.STABLE, Time.SYSTEM, 9,
            Optional.of("consumer"), Optional.of("range"), Optional.of("m1"), Optional.of(1700000000123L));
        stable.add(member("m1", "i1", new byte[]{1, 2, 3}));
        print("kafka-group", GroupCoordinatorRecordHelpers.newGroupMetadataRecord(stable, Map.of("m1", new byte[]{4, 5})));
        ClassicGroup empty = new ClassicGroup(new LogContext(), "группа", ClassicGroupState.EMPTY, Time.SYSTEM, 10,
            Optional.of("consumer"), Optional.empty(), Optional.empty(), Optional.of(1700000000456L));
        print("kafka-group-empty", GroupCoordinatorRecordHelpers.newGroupMetadataRecord(empty, Map.of()));
        print("kafka-group-tombstone", GroupCoordinatorRecordHelpers.newGroupMetadataTombstoneRecord("группа"));
    }

    public static void main(String[] args) {
        offsets();
        groups();
    }
}
