import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Runs queries in Flink on the catalog that a file creates, and writes their rows: SETTINGS OUTPUT QUERY... */
public class Query
{
    public static void main(String[] arguments)
            throws Exception
    {
        TableEnvironment flink = TableEnvironment.create(EnvironmentSettings.inBatchMode());
        flink.executeSql(Files.readString(Path.of(arguments[0])));
        StringBuilder rows = new StringBuilder();
        for (int index = 2; index < arguments.length; index++) {
            flink.executeSql(arguments[index]).collect()
                    .forEachRemaining(row -> rows.append(row.toString().replace("+I", "")).append("\n"));
        }
        Files.writeString(Path.of(arguments[1]), rows);
        System.exit(0);
    }
}
