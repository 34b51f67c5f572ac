import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.coordinator.transaction.TransactionState;
import org.apache.kafka.coordinator.transaction.TxnTransitMetadata;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValueJsonConverter;
import org.apache.kafka.server.common.TransactionVersion;

/** Prints records of `__transaction_state` as Kafka's own classes write them, and what they read back from the bytes. */
public final class TransactionRecords {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ArrayNode RECORDS = JSON.createArrayNode();
    private static final long START = 1_700_000_000_000L;

    private static void add(String id, TransactionVersion written, byte[] value) throws Exception {
        byte[] key = TransactionLog.keyToBytes(id);
        if (!id.equals(TransactionLog.readTxnRecordKey(ByteBuffer.wrap(key))))
            throw new IllegalStateException(id);
        ByteBuffer buffer = ByteBuffer.wrap(value);
        short version = buffer.getShort();
        ObjectNode record = RECORDS.addObject();
        record.put("transactionalId", id);
        record.put("transactionVersion", written == null ? null : (int) written.featureLevel());
        record.put("valueVersion", version);
        record.put("key", HexFormat.of().formatHex(key));
        record.put("value", HexFormat.of().formatHex(value));
        record.set("fields", TransactionLogValueJsonConverter.write(
            new TransactionLogValue(new ByteBufferAccessor(buffer), version), version));
    }

    private static TxnTransitMetadata of(TransactionState state, long id, long previous, long next, int epoch,
                                         Set<TopicPartition> partitions, long start, TransactionVersion client) {
        return new TxnTransitMetadata(id, previous, next, (short) epoch, (short) -1, 60_000, state,
            new HashSet<>(partitions), start, START + 7, client);
    }

    public static void main(String[] args) throws Exception {
        Set<TopicPartition> none = Set.of();
        Set<TopicPartition> one = Set.of(new TopicPartition("orders", 3));
        Set<TopicPartition> some = Set.of(new TopicPartition("orders", 3), new TopicPartition("orders", 2),
            new TopicPartition("__consumer_offsets", 49), new TopicPartition("ströme", 0));
        TransactionVersion v0 = TransactionVersion.TV_0, v2 = TransactionVersion.TV_2;
        for (TransactionVersion written : TransactionVersion.values()) {
            add("first", written, TransactionLog.valueToBytes(of(TransactionState.EMPTY, 17, 17, -1, 0, none, -1, v0), written));
            add("schlüssel-ключ", written, TransactionLog.valueToBytes(
                of(TransactionState.ONGOING, 1L << 40, 1L << 40, -1, 5, some, START, v0), written));
            for (TransactionState state : List.of(TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
                add("one", written, TransactionLog.valueToBytes(of(state, 3, 3, -1, 32765, one, START, v0), written));
            for (TransactionState state : List.of(TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
                add("one", written, TransactionLog.valueToBytes(of(state, 3, 3, -1, 32765, none, START, v0), written));
        }
        add("second", v2, TransactionLog.valueToBytes(of(TransactionState.ONGOING, 3, 3, -1, 9, one, START, v2), v2));
        add("second", v2, TransactionLog.valueToBytes(of(TransactionState.PREPARE_COMMIT, 3, 3, -1, 10, one, START, v2), v2));
        add("rotates", v2, TransactionLog.valueToBytes(of(TransactionState.PREPARE_ABORT, 3, 3, 99, 32767, some, START, v2), v2));
        add("rotates", v2, TransactionLog.valueToBytes(of(TransactionState.COMPLETE_ABORT, 99, 3, -1, 0, none, START, v2), v2));
        // No broker writes this field yet, but its schema has it, and it must survive being read.
        add("next-epoch", null, MessageUtil.toVersionPrefixedBytes((short) 1, new TransactionLogValue()
            .setProducerId(3).setNextProducerId(4).setNextProducerEpoch((short) 2).setProducerEpoch((short) 1)
            .setTransactionTimeoutMs(1).setTransactionStatus((byte) 2).setTransactionPartitions(List.of())
            .setTransactionLastUpdateTimestampMs(START).setTransactionStartTimestampMs(START)));
        System.out.println(JSON.writerWithDefaultPrettyPrinter().writeValueAsString(RECORDS));
    }
}
