import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java producer, driven by lines on standard input. Fields are separated by tabs, bytes are hexadecimal
 * and "-" stands for null:
 *   open    name=value ...                                  closes the last producer and opens one with these settings
 *   begin | commit | abort                                  a transaction; open one with transactional.id first
 *   record  topic partition timestamp key value [name=value ...]   names of headers are hexadecimal as well
 *   flush                                                   waits until all is acknowledged
 */
public final class ScriptedProducer {
    private KafkaProducer<byte[], byte[]> producer;
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        ScriptedProducer script = new ScriptedProducer();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            script.run(line.split("\t", -1));
        }
        script.close();
        System.out.println("done");
    }

    private void run(String[] fields) throws Exception {
        switch (fields[0]) {
            case "open" -> open(fields);
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "flush" -> flush();
            case "record" -> sent.add(producer.send(record(fields)));
            default -> throw new IllegalArgumentException("unknown command " + fields[0]);
        }
    }

    private void open(String[] fields) {
        close();
        Properties settings = new Properties();
        for (int i = 1; i < fields.length; i++) {
            String[] pair = fields[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (settings.containsKey("transactional.id")) {
            producer.initTransactions();
        }
    }

    private void flush() throws Exception {
        producer.flush();
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        sent.clear();
    }

    private static ProducerRecord<byte[], byte[]> record(String[] fields) {
        List<Header> headers = new ArrayList<>();
        for (int i = 6; i < fields.length; i++) {
            String[] pair = fields[i].split("=", 2);
            String name = new String(HexFormat.of().parseHex(pair[0]), StandardCharsets.UTF_8);
            headers.add(new RecordHeader(name, bytes(pair[1])));
        }
        return new ProducerRecord<>(fields[1], Integer.parseInt(fields[2]), Long.parseLong(fields[3]),
            bytes(fields[4]), bytes(fields[5]), headers);
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : HexFormat.of().parseHex(text);
    }

    private void close() {
        if (producer != null) {
            producer.close();
        }
    }
}
