import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.RestService;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Schema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.requests.RegisterSchemaRequest;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.avro.shaded.org.apache.avro.io.BinaryEncoder;
import org.apache.flink.avro.shaded.org.apache.avro.io.DecoderFactory;
import org.apache.flink.avro.shaded.org.apache.avro.io.EncoderFactory;

/**
 * Confluent's registry client for Java, as Flink ships it, as a client program: JSON commands from stdin, answers to
 * stdout. Confluent's serializers are not among what Flink ships: values are written and read by Avro's own library.
 */
public final class RegistryProgram {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, String> NO_PROPERTIES = Map.of();

    private final RestService rest;
    private final CachedSchemaRegistryClient client;

    private RegistryProgram(String url) {
        rest = new RestService(url);
        client = new CachedSchemaRegistryClient(rest, 100);
    }

    public static void main(String[] words) throws Exception {
        RegistryProgram program = new RegistryProgram(words[0]);
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                program.run(JSON.readTree(line), answer);
            } catch (Exception error) {
                error.printStackTrace();
                ObjectNode told = answer.removeAll().putObject("error");
                if (error instanceof RestClientException refused) {
                    told.put("code", refused.getErrorCode());
                } else {
                    told.putNull("code");
                }
                told.put("text", error.toString());
            }
            answers.println(answer);
        }
    }

    private void run(JsonNode given, ObjectNode answer) throws Exception {
        String subject = given.path("subject").asText();
        boolean permanent = given.path("permanent").asBoolean();
        switch (given.get("command").asText()) {
            case "register" -> answer.put("id", rest.registerSchema(request(given), subject, false).getId());
            case "look_up" -> {
                Schema found = rest.lookUpSubjectVersion(request(given), subject, false, false);
                answer.put("id", found.getId()).put("version", found.getVersion());
            }
            case "versions" -> answer.set("versions", JSON.valueToTree(rest.getAllVersions(subject)));
            case "version" -> {
                Schema found = rest.getVersion(subject, given.get("version").asInt());
                answer.put("id", found.getId()).set("schema", JSON.valueToTree(found));
            }
            case "schema" -> answer.put("text", rest.getId(given.get("id").asInt(), subject).getSchemaString());
            case "compatible" -> answer.put(
                    "compatible", rest.testCompatibility(request(given), subject, "latest", false, false).isEmpty());
            case "set_level" -> rest.updateCompatibility(given.get("level").asText(), subject);
            case "delete_version" ->
                    rest.deleteSchemaVersion(NO_PROPERTIES, subject, given.get("version").asText(), permanent);
            case "delete_subject" ->
                    answer.set("versions", JSON.valueToTree(rest.deleteSubject(NO_PROPERTIES, subject, permanent)));
            case "serialize" -> answer.put("data", write(given)).putArray("headers");
            case "deserialize" -> answer.set("value", JSON.readTree(read(given.get("data").binaryValue())));
            default -> throw new IllegalArgumentException(given.toString());
        }
    }

    private static RegisterSchemaRequest request(JsonNode given) throws Exception {
        return JSON.treeToValue(given.get("schema"), RegisterSchemaRequest.class);
    }

    private byte[] write(JsonNode given) throws Exception {
        AvroSchema schema = new AvroSchema(given.get("schema").get("schema").asText());
        int id = client.register(given.get("topic").asText() + "-value", schema);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        new DataOutputStream(out).writeByte(0);
        new DataOutputStream(out).writeInt(id);
        GenericDatumReader<GenericRecord> reader = new GenericDatumReader<>(schema.rawSchema());
        GenericRecord value = reader.read(
                null, DecoderFactory.get().jsonDecoder(schema.rawSchema(), given.get("value").toString()));
        BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(out, null);
        new GenericDatumWriter<GenericRecord>(schema.rawSchema()).write(value, encoder);
        encoder.flush();
        return out.toByteArray();
    }

    private String read(byte[] data) throws Exception {
        ByteBuffer buffer = ByteBuffer.wrap(data);
        if (buffer.get() != 0) {
            throw new IllegalArgumentException("the first byte is not 0");
        }
        AvroSchema schema = (AvroSchema) client.getSchemaById(buffer.getInt());
        GenericDatumReader<GenericRecord> reader = new GenericDatumReader<>(schema.rawSchema());
        return reader.read(null, DecoderFactory.get().binaryDecoder(data, 5, data.length - 5, null)).toString();
    }
}
