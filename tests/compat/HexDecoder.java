import java.util.HexFormat;
import org.apache.kafka.tools.api.Decoder;

/** Lets Kafka's log dump tool print keys and values as hexadecimal, so that every byte can be compared. */
public final class HexDecoder implements Decoder<String> {
    @Override
    public String fromBytes(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
