import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Plays a part of a share group's life and prints what a client sees, one line for each observation. */
public class ShareScenario {
    static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        String topic = args[2];
        String group = args[3];
        switch (args[1]) {
            case "begin" -> begin(topic, group);
            case "drain" -> drain(topic, group, Integer.parseInt(args[4]));
            case "produce" -> produce(topic, Integer.parseInt(args[4]), Integer.parseInt(args[5]));
            default -> throw new IllegalArgumentException(args[1]);
        }
    }

    /** Accept, release, reject, redelivery, the delivery limit, two members, descriptions, offsets. */
    static void begin(String topic, String group) throws Exception {
        try (Admin admin = Admin.create(common())) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get(30, TimeUnit.SECONDS);
            configure(admin, group, Map.of("share.auto.offset.reset", "earliest", "share.delivery.count.limit", "2"));
            produce(topic, 0, 6);
            try (KafkaShareConsumer<String, String> consumer = consumer(group, "explicit")) {
                consumer.subscribe(List.of(topic));
                List<ConsumerRecord<String, String>> first = poll(consumer, 6);
                print("first", first);
                consumer.acknowledge(first.get(0), AcknowledgeType.ACCEPT);
                consumer.acknowledge(first.get(1), AcknowledgeType.RELEASE);
                consumer.acknowledge(first.get(2), AcknowledgeType.REJECT);
                consumer.acknowledge(first.get(3), AcknowledgeType.RELEASE);
                consumer.acknowledge(first.get(4), AcknowledgeType.ACCEPT);
                consumer.acknowledge(first.get(5), AcknowledgeType.ACCEPT);
                System.out.println("committed " + outcome(consumer.commitSync()));
                List<ConsumerRecord<String, String>> second = poll(consumer, 2);
                print("second", second);
                for (ConsumerRecord<String, String> record : second) {
                    consumer.acknowledge(record, AcknowledgeType.RELEASE);
                }
                System.out.println("committed " + outcome(consumer.commitSync()));
                // Both were delivered as often as they may be, so that only new records come.
                produce(topic, 6, 8);
                List<ConsumerRecord<String, String>> third = poll(consumer, 2);
                print("third", third);
                consumer.acknowledge(third.get(0), AcknowledgeType.RENEW);
                consumer.acknowledge(third.get(1), AcknowledgeType.ACCEPT);
                System.out.println("renewed " + outcome(consumer.commitSync()));
                List<ConsumerRecord<String, String>> renewed = poll(consumer, 1);
                print("again", renewed);
                consumer.acknowledge(renewed.get(0), AcknowledgeType.ACCEPT);
                System.out.println("committed " + outcome(consumer.commitSync()));
                var described = admin.describeShareGroups(List.of(group)).all().get(30, TimeUnit.SECONDS).get(group);
                System.out.println("group " + described.groupState() + " members " + described.members().size());
                described.members().forEach(m -> System.out.println("member " + m.assignment().topicPartitions()));
            }
            awaitEmpty(admin, group);
            var offsets = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get(30, TimeUnit.SECONDS);
            new TreeMap<>(Map.of("p", offsets.get(new TopicPartition(topic, 0))))
                .forEach((k, v) -> System.out.println("lag " + v.lag().orElse(-1L)));
            System.out.println("listed " + admin.listGroups().all().get(30, TimeUnit.SECONDS).stream()
                .filter(g -> g.groupId().equals(group)).map(g -> g.type() + " " + g.protocol() + " " + g.groupState().get())
                .toList());
        }
        twoMembers(topic, group);
    }

    /** Two members of a group share the records of one partition. */
    static void twoMembers(String topic, String group) throws Exception {
        TreeSet<String> seen = new TreeSet<>();
        try (KafkaShareConsumer<String, String> one = consumer(group, "implicit");
             KafkaShareConsumer<String, String> two = consumer(group, "implicit")) {
            one.subscribe(List.of(topic));
            two.subscribe(List.of(topic));
            one.poll(Duration.ofMillis(500));
            two.poll(Duration.ofMillis(500));
            produce(topic, 8, 20);
            long deadline = System.currentTimeMillis() + 30_000;
            List<String> all = new ArrayList<>();
            while (all.size() < 12 && System.currentTimeMillis() < deadline) {
                for (var consumer : List.of(one, two)) {
                    consumer.poll(Duration.ofMillis(200)).forEach(r -> all.add(r.value()));
                }
            }
            // What was not polled past is not acknowledged by closing.
            one.commitSync();
            two.commitSync();
            seen.addAll(all);
            System.out.println("shared " + all.size() + " distinct " + seen.size());
        }
    }

    /** Consumes until so many records were seen; prints their values in order. */
    static void drain(String topic, String group, int count) throws Exception {
        try (KafkaShareConsumer<String, String> consumer = consumer(group, "implicit")) {
            consumer.subscribe(List.of(topic));
            TreeSet<Integer> seen = new TreeSet<>();
            poll(consumer, count).forEach(record -> seen.add(Integer.parseInt(record.value())));
            consumer.commitSync();
            System.out.println("drained " + seen);
        }
    }

    static void produce(String topic, int from, int to) throws Exception {
        Properties properties = common();
        // One batch, sent by the flush: a fetch that waits must not be answered with a part of it.
        properties.put("linger.ms", "60000");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (int i = from; i < to; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, null, Integer.toString(i))));
            }
            producer.flush();
        }
        for (Future<RecordMetadata> each : sent) {
            each.get(30, TimeUnit.SECONDS);
        }
    }

    static void configure(Admin admin, String group, Map<String, String> configs) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        configs.forEach((k, v) -> changes.add(new AlterConfigOp(new ConfigEntry(k, v), AlterConfigOp.OpType.SET)));
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get(30, TimeUnit.SECONDS);
    }

    static void awaitEmpty(Admin admin, String group) throws Exception {
        long deadline = System.currentTimeMillis() + 30_000;
        while (System.currentTimeMillis() < deadline) {
            var described = admin.describeShareGroups(List.of(group)).all().get(30, TimeUnit.SECONDS).get(group);
            if (described.members().isEmpty()) {
                return;
            }
            Thread.sleep(50);
        }
    }

    static List<ConsumerRecord<String, String>> poll(KafkaShareConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 40_000;
        while (found.size() < count && System.currentTimeMillis() < deadline) {
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        }
        return found;
    }

    static void print(String name, List<ConsumerRecord<String, String>> records) {
        StringBuilder line = new StringBuilder(name);
        records.forEach(r -> line.append(' ').append(r.offset()).append('=').append(r.value())
            .append('#').append(r.deliveryCount().map(Object::toString).orElse("?")));
        System.out.println(line);
    }

    static String outcome(Map<?, Optional<org.apache.kafka.common.KafkaException>> result) {
        return result.values().stream().map(e -> e.map(x -> x.getClass().getSimpleName()).orElse("ok")).toList().toString();
    }

    static Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    static KafkaShareConsumer<String, String> consumer(String group, String mode) {
        Properties properties = common();
        properties.put("group.id", group);
        properties.put("share.acknowledgement.mode", mode);
        return new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }
}
