import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Runs statements of Flink SQL in each round, waits for the end of the last one, and writes the wall and the
 * processor seconds of each round: OUTPUT ROUNDS STATEMENT... In the statements, `{round}` is the round.
 */
public class Upsert
{
    public static void main(String[] arguments)
            throws Exception
    {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "10 s");
        // The state of many rows does not fit the messages in which small states go.
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir",
                Path.of(arguments[0]).toAbsolutePath().resolveSibling("checkpoints").toUri().toString());
        settings.setString("parallelism.default", "2");
        settings.setString("restart-strategy.type", "none");
        var machine = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        StringBuilder lines = new StringBuilder();
        for (int round = 1; round <= Integer.parseInt(arguments[1]); round++) {
            TableEnvironment flink = TableEnvironment.create(
                    EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
            long begunNanos = System.nanoTime();
            long usedNanos = machine.getProcessCpuTime();
            for (int index = 2; index < arguments.length; index++) {
                var result = flink.executeSql(arguments[index].replace("{round}", Integer.toString(round)));
                if (index == arguments.length - 1) {
                    result.await();
                }
            }
            lines.append((System.nanoTime() - begunNanos) / 1e9).append(' ')
                    .append((machine.getProcessCpuTime() - usedNanos) / 1e9).append('\n');
        }
        Files.writeString(Path.of(arguments[0]), lines);
        System.exit(0);
    }
}
