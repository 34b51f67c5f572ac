import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Prints each pattern of a file with the names of another that RE2/J, which Kafka uses, finds it to match whole. */
public class TopicPatterns {
    public static void main(String[] args) throws Exception {
        List<String> names = Files.readAllLines(Path.of(args[1]));
        for (String text : Files.readAllLines(Path.of(args[0]))) {
            try {
                Pattern pattern = Pattern.compile(text);
                List<String> matched = new ArrayList<>();
                for (String name : names) if (pattern.matcher(name).matches()) matched.add(name);
                System.out.println(text + "\t" + String.join(",", matched));
            } catch (PatternSyntaxException invalid) {
                System.out.println(text + "\t!");
            }
        }
    }
}
