import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer in a group that polls in a thread of its own, and keeps a log of what happened to it.
 *
 * It commits behind every poll that brought records, and once more before it gives partitions away.
 */
final class GroupMember extends Thread implements ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long TIMEOUT_S = 30;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long COMMIT_PAUSE_MS = 50;
    private static final Comparator<TopicPartition> ORDER =
        Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition);

    private record Task(Consumer<KafkaConsumer<byte[], byte[]>> work, CompletableFuture<Void> done) {}

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final boolean commits;
    private final Queue<Task> tasks = new ConcurrentLinkedQueue<>();
    private final Set<TopicPartition> owned = new HashSet<>();
    private final ArrayNode events = JSON.createArrayNode();
    private final ArrayNode records = JSON.createArrayNode();
    private ObjectNode error;
    private volatile boolean leaving;
    private boolean unsaved;

    GroupMember(Properties settings, boolean commits) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        this.consumer = new KafkaConsumer<>(settings, bytes, bytes);
        this.commits = commits;
        setDaemon(true);
    }

    void subscribe(List<String> topics) {
        consumer.subscribe(topics, this);
    }

    /** A pattern that the broker looks at is a class of its own, which only newer clients have. */
    void subscribe(String pattern, boolean atBroker) {
        try {
            Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            if (atBroker) {
                consumer.getClass().getMethod("subscribe", kind, ConsumerRebalanceListener.class)
                    .invoke(consumer, kind.getConstructor(String.class).newInstance(pattern), this);
                return;
            }
        } catch (ClassNotFoundException older) {
            // Then the client looks itself.
        } catch (ReflectiveOperationException wrong) {
            throw new IllegalStateException(wrong);
        }
        consumer.subscribe(Pattern.compile(pattern), this);
    }

    @Override
    public void run() {
        try {
            while (!leaving) {
                for (Task task = tasks.poll(); task != null; task = tasks.poll()) {
                    perform(task);
                }
                ConsumerRecords<byte[], byte[]> found = consumer.poll(POLL);
                if (!found.isEmpty()) {
                    note(found);
                    unsaved = true;
                }
                save();
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
            synchronized (this) {
                error = JSON.createObjectNode().put("text", problem.toString());
                error.put("code", Errors.forException(problem).code());
            }
        } finally {
            consumer.close();
        }
    }

    /** Runs it between two polls: a consumer belongs to one thread. */
    void call(Consumer<KafkaConsumer<byte[], byte[]>> work) throws Exception {
        Task task = new Task(work, new CompletableFuture<>());
        tasks.add(task);
        try {
            task.done().get(TIMEOUT_S, TimeUnit.SECONDS);
        } catch (ExecutionException wrapped) {
            throw (Exception) wrapped.getCause();
        }
    }

    /** Returns when the consumer is closed; a static member only goes away. */
    void leave() throws InterruptedException {
        leaving = true;
        join(TimeUnit.SECONDS.toMillis(TIMEOUT_S));
    }

    /** All that happened. */
    synchronized void tell(ObjectNode out) {
        out.set("owned", rows(owned));
        out.set("events", events.deepCopy());
        out.set("records", records.deepCopy());
        out.set("failure", error);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        note("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        saveForNextOwner();
        note("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        unsaved = false;
        note("lost", partitions);
    }

    /** Commits what was read; returns whether nothing is left to commit. */
    private boolean save() {
        if (!commits || !unsaved) {
            return true;
        }
        try {
            consumer.commitSync();
            unsaved = false;
        } catch (RebalanceInProgressException | RetriableException later) {
            // The next poll goes on with the rebalance, and the commit comes behind it.
        }
        return !unsaved;
    }

    /** The next owner starts at the committed offsets, so a commit that fails for now is retried before partitions go. */
    private void saveForNextOwner() {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (!save()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the offsets of revoked partitions could not be committed");
            }
            try {
                Thread.sleep(COMMIT_PAUSE_MS);
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }
    }

    private void perform(Task task) {
        try {
            task.work().accept(consumer);
            task.done().complete(null);
        } catch (Exception problem) {
            task.done().completeExceptionally(problem);
        }
    }

    private synchronized void note(String kind, Collection<TopicPartition> partitions) {
        if (partitions.isEmpty()) {
            return;
        }
        events.addArray().add(kind).add(rows(partitions)).add(System.currentTimeMillis());
        if (kind.equals("assigned")) {
            owned.addAll(partitions);
        } else {
            owned.removeAll(partitions);
        }
    }

    private synchronized void note(ConsumerRecords<byte[], byte[]> found) {
        for (ConsumerRecord<byte[], byte[]> each : found) {
            records.addArray().add(each.topic()).add(each.partition()).add(each.offset());
        }
    }

    private static ArrayNode rows(Collection<TopicPartition> partitions) {
        ArrayNode rows = JSON.createArrayNode();
        partitions.stream().sorted(ORDER).forEach(each -> rows.addArray().add(each.topic()).add(each.partition()));
        return rows;
    }
}
