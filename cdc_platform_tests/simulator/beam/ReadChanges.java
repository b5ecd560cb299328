import com.google.cloud.Timestamp;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.stream.Collectors;
import org.apache.beam.runners.direct.DirectOptions;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.io.gcp.spanner.SpannerConfig;
import org.apache.beam.sdk.io.gcp.spanner.SpannerIO;
import org.apache.beam.sdk.io.gcp.spanner.changestreams.model.DataChangeRecord;
import org.apache.beam.sdk.io.gcp.spanner.changestreams.model.Mod;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.ValueProvider.StaticValueProvider;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.ParDo;

/**
 * Writes the data change records of a period as lines of JSON.
 *
 * <p>Arguments: host, project, instance, database, change stream, database for the metadata, start, end, file.
 */
public class ReadChanges {
  static class Write extends DoFn<DataChangeRecord, Void> {
    private final String file;

    Write(String file) {
      this.file = file;
    }

    @ProcessElement
    public void process(@Element DataChangeRecord record) throws Exception {
      String line =
          String.format(
              "{\"commit\":%s,\"transaction\":%s,\"partition\":%s,\"table\":%s,\"type\":%s,\"mods\":[%s]}%n",
              quoted(record.getCommitTimestamp().toString()),
              quoted(record.getServerTransactionId()),
              quoted(record.getPartitionToken()),
              quoted(record.getTableName()),
              quoted(record.getModType().toString()),
              record.getMods().stream().map(Write::pair).collect(Collectors.joining(",")));
      synchronized (Write.class) {
        Files.write(
            Paths.get(file),
            line.getBytes(StandardCharsets.UTF_8),
            StandardOpenOption.CREATE,
            StandardOpenOption.APPEND);
      }
    }

    /** The texts of a mod are JSON themselves. */
    private static String pair(Mod mod) {
      return "{\"keys\":" + mod.getKeysJson() + ",\"new\":" + mod.getNewValuesJson() + "}";
    }

    private static String quoted(String text) {
      return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }
  }

  public static void main(String[] arguments) {
    DirectOptions options = PipelineOptionsFactory.create().as(DirectOptions.class);
    options.setTargetParallelism(4);
    SpannerConfig spanner =
        SpannerConfig.create()
            .withEmulatorHost(StaticValueProvider.of(arguments[0]))
            .withProjectId(arguments[1])
            .withInstanceId(arguments[2])
            .withDatabaseId(arguments[3]);
    Pipeline pipeline = Pipeline.create(options);
    pipeline
        .apply(
            SpannerIO.readChangeStream()
                .withSpannerConfig(spanner)
                .withChangeStreamName(arguments[4])
                .withMetadataInstance(arguments[2])
                .withMetadataDatabase(arguments[5])
                .withInclusiveStartAt(Timestamp.parseTimestamp(arguments[6]))
                .withInclusiveEndAt(Timestamp.parseTimestamp(arguments[7])))
        .apply(ParDo.of(new Write(arguments[8])));
    int code = 0;
    try {
      System.out.println("The pipeline ended: " + pipeline.run().waitUntilFinish());
    } catch (Throwable error) {
      error.printStackTrace();
      code = 1;
    }
    // Threads of its clients would keep the process alive.
    System.exit(code);
  }
}
