import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/**
 * Answers questions about Avro schemas with Avro's Java library, one line for each line it reads.
 *
 * <p>A question is a word and schemas in base 64, with tabs between them. "new" and "stored" parse the last schema after the
 * others, which it may use by name, and answer with its text; "read" parses a reader's and a writer's schema and answers
 * with the kinds and places of incompatibilities. An answer begins with "ok" or "error"; what follows is in base 64.
 */
public final class AvroJudge {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            List<String> schemas = new ArrayList<>();
            for (int i = 1; i < words.length; i++) {
                schemas.add(new String(Base64.getDecoder().decode(words[i]), StandardCharsets.UTF_8));
            }
            String answer;
            try {
                answer = "ok\t" + encoded(words[0].equals("read") ? compared(schemas) : text(schemas, words[0].equals("new")));
            } catch (RuntimeException | StackOverflowError e) {
                answer = "error\t" + encoded(String.valueOf(e.getMessage()));
            }
            out.println(answer);
            out.flush();
        }
    }

    private static Schema.Parser parser(boolean isNew) {
        Schema.Parser parser = new Schema.Parser(isNew ? NameValidator.STRICT_VALIDATOR : NameValidator.NO_VALIDATION);
        parser.setValidateDefaults(isNew);
        return parser;
    }

    @SuppressWarnings("deprecation")
    private static String text(List<String> schemas, boolean isNew) {
        Schema.Parser parser = parser(isNew);
        List<Schema> references = new ArrayList<>();
        for (String each : schemas.subList(0, schemas.size() - 1)) {
            references.add(parser.parse(each));
        }
        Schema schema = parser.parse(schemas.get(schemas.size() - 1));
        if (!isNew) {
            checkNames(schema, Collections.newSetFromMap(new IdentityHashMap<>()));
        }
        return schema.toString(references, false);
    }

    /** Confluent's registry accepts letters of any script in names that are registered already. */
    private static void checkNames(Schema schema, Set<Schema> seen) {
        if (!seen.add(schema)) {
            return;
        }
        switch (schema.getType()) {
            case RECORD -> {
                checkName(schema.getName());
                for (Schema.Field field : schema.getFields()) {
                    checkName(field.name());
                    checkNames(field.schema(), seen);
                }
            }
            case ENUM -> {
                checkName(schema.getName());
                schema.getEnumSymbols().forEach(AvroJudge::checkName);
            }
            case FIXED -> checkName(schema.getName());
            case ARRAY -> checkNames(schema.getElementType(), seen);
            case MAP -> checkNames(schema.getValueType(), seen);
            case UNION -> schema.getTypes().forEach(branch -> checkNames(branch, seen));
            default -> { }
        }
    }

    private static void checkName(String name) {
        if (!NameValidator.UTF_VALIDATOR.validate(name).isOK()) {
            throw new IllegalArgumentException("invalid name: " + name);
        }
    }

    private static String compared(List<String> schemas) {
        Schema reader = parser(false).parse(schemas.get(0));
        Schema writer = parser(false).parse(schemas.get(1));
        StringBuilder found = new StringBuilder();
        for (SchemaCompatibility.Incompatibility each :
                SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult().getIncompatibilities()) {
            found.append(each.getType()).append(' ').append(each.getLocation()).append('\n');
        }
        return found.toString();
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
