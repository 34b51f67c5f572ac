import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words exactly once: reads a topic, sends each record to a repartition topic by its value, keeps the counts in
 * a store with a changelog topic, and writes every new count. Prints its state; ends when its input ends.
 */
public class WordCounts {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String application = args[1];
        String folder = args[2];
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        config.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        config.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        // Each record gives a count of its own.
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "4000");
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("words", Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, word) -> word, Grouped.as("by-word"))
            .count(Materialized.as("counts"))
            .toStream()
            .to("word-counts", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        CountDownLatch failed = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println("STATE " + now);
            if (now == KafkaStreams.State.ERROR) {
                failed.countDown();
            }
        });
        streams.start();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // Whatever comes means nothing.
                }
            } catch (java.io.IOException gone) {
                // Ended as well.
            }
            failed.countDown();
        });
        input.setDaemon(true);
        input.start();
        failed.await();
        streams.close();
        System.out.println("CLOSED");
    }
}
