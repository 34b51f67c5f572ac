import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/** What a client needs at a listener with TLS and SASL. */
final class Logins {
    private static final String PACKAGE = "org.apache.kafka.common.security.";

    private Logins() {
    }

    /** Adds the settings of a login, if there is one. */
    static void add(JsonNode login, Properties settings) {
        if (login == null) {
            return;
        }
        settings.put("bootstrap.servers", text(login, "bootstrap"));
        settings.put("security.protocol", text(login, "protocol"));
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", text(login, "authority"));
        if (login.hasNonNull("certificate")) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.certificate.chain", content(text(login, "certificate")));
            settings.put("ssl.keystore.key", content(text(login, "key")));
        }
        if (!login.hasNonNull("mechanism")) {
            return;
        }
        settings.put("sasl.mechanism", text(login, "mechanism"));
        if (login.hasNonNull("token")) {
            String token = Path.of(text(login, "token")).toUri().toString();
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token);
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", text(login, "token"));
            settings.put("sasl.oauthbearer.token.endpoint.url", token);
            settings.put("sasl.login.callback.handler.class",
                PACKAGE + "oauthbearer.OAuthBearerLoginCallbackHandler");
            settings.put("sasl.jaas.config", PACKAGE + "oauthbearer.OAuthBearerLoginModule required;");
            return;
        }
        String module = text(login, "mechanism").equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        settings.put("sasl.jaas.config", String.format("%s%s required username=\"%s\" password=\"%s\";",
            PACKAGE, module, text(login, "username"), text(login, "password")));
    }

    private static String text(JsonNode login, String name) {
        return login.get(name).asText();
    }

    private static String content(String path) {
        try {
            return Files.readString(Path.of(path));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
