import com.google.cloud.Timestamp;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.beam.runners.direct.DirectOptions;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.PipelineResult;
import org.apache.beam.sdk.io.gcp.spanner.SpannerConfig;
import org.apache.beam.sdk.io.gcp.spanner.SpannerIO;
import org.apache.beam.sdk.io.gcp.spanner.changestreams.model.DataChangeRecord;
import org.apache.beam.sdk.io.gcp.spanner.changestreams.model.Mod;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.ValueProvider.StaticValueProvider;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.ParDo;

/**
 * Writes the data change records of periods of streams as lines of JSON, all streams at once.
 *
 * <p>Arguments, for each: host, project, instance, database, change stream, database for the metadata, start,
 * end, file. At the end a line for each has its file, and how it ended: a state, or an error.
 */
public class ReadChanges {
  private static final int ARGUMENTS = 9;

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

  /** Starts reading one stream; the arguments begin at an index. */
  private static PipelineResult start(String[] arguments, int at) {
    DirectOptions options = PipelineOptionsFactory.create().as(DirectOptions.class);
    options.setTargetParallelism(4);
    options.setBlockOnRun(false);
    SpannerConfig spanner =
        SpannerConfig.create()
            .withEmulatorHost(StaticValueProvider.of(arguments[at]))
            .withProjectId(arguments[at + 1])
            .withInstanceId(arguments[at + 2])
            .withDatabaseId(arguments[at + 3]);
    Pipeline pipeline = Pipeline.create(options);
    pipeline
        .apply(
            SpannerIO.readChangeStream()
                .withSpannerConfig(spanner)
                .withChangeStreamName(arguments[at + 4])
                .withMetadataInstance(arguments[at + 2])
                .withMetadataDatabase(arguments[at + 5])
                .withInclusiveStartAt(Timestamp.parseTimestamp(arguments[at + 6]))
                .withInclusiveEndAt(Timestamp.parseTimestamp(arguments[at + 7])))
        .apply(ParDo.of(new Write(arguments[at + 8])));
    return pipeline.run();
  }

  public static void main(String[] arguments) {
    List<PipelineResult> results = new ArrayList<>();
    for (int at = 0; at < arguments.length; at += ARGUMENTS) {
      results.add(start(arguments, at));
    }
    for (int number = 0; number < results.size(); number++) {
      String outcome;
      try {
        outcome = results.get(number).waitUntilFinish().toString();
      } catch (Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        outcome = text.toString().replaceAll("\\s+", " ");
      }
      System.out.println(arguments[number * ARGUMENTS + 8] + " ended: " + outcome);
    }
    // Threads of its clients would keep the process alive.
    System.exit(0);
  }
}
