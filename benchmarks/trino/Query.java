import io.trino.plugin.iceberg.IcebergPlugin;
import io.trino.testing.QueryRunner;
import io.trino.testing.StandaloneQueryRunner;
import io.trino.testing.TestingSession;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;

/** Runs queries in Trino on the catalog `lake`, and writes their rows: SETTINGS OUTPUT QUERY... */
public class Query
{
    public static void main(String[] arguments)
            throws Exception
    {
        Properties settings = read(arguments[0]);
        String connector = (String) settings.remove("connector.name");
        Map<String, String> properties = settings.stringPropertyNames().stream()
                .collect(Collectors.toMap(name -> name, settings::getProperty));
        StringBuilder rows = new StringBuilder();
        try (QueryRunner runner = new StandaloneQueryRunner(TestingSession.testSessionBuilder().build())) {
            runner.installPlugin(new IcebergPlugin());
            runner.createCatalog("lake", connector, properties);
            for (int index = 2; index < arguments.length; index++) {
                runner.execute(arguments[index]).getMaterializedRows()
                        .forEach(row -> rows.append(row.getFields()).append("\n"));
            }
        }
        Files.writeString(Path.of(arguments[1]), rows);
        System.exit(0);
    }

    private static Properties read(String path)
            throws IOException
    {
        Properties settings = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(path))) {
            settings.load(reader);
        }
        return settings;
    }
}
