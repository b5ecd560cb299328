import com.google.cloud.Timestamp;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.stream.Collectors;
import org.apache.beam.runners.direct.DirectOptions;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.io.gcp.spanner.*;
import org.apache.beam.sdk.io.gcp.spanner.changestreams.model.*;
import org.apache.beam.sdk.options.*;
import org.apache.beam.sdk.transforms.*;

/** host project instance database stream metadataInstance metadataDatabase start end file */
public class Probe {
  static class Write extends DoFn<DataChangeRecord, Void> {
    final String file;
    Write(String file) { this.file = file; }
    static String q(String s) { return s == null ? "null" : "\"" + s.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n","\\n") + "\""; }
    @ProcessElement
    public void process(@Element DataChangeRecord r) throws Exception {
      String mods = r.getMods().stream()
          .map(m -> "{\"keys\":" + q(m.getKeysJson()) + ",\"new\":" + q(m.getNewValuesJson()) + ",\"old\":" + q(m.getOldValuesJson()) + "}")
          .collect(Collectors.joining(","));
      String line = "{\"commit_timestamp\":" + q(r.getCommitTimestamp().toString())
          + ",\"server_transaction_id\":" + q(r.getServerTransactionId())
          + ",\"record_sequence\":" + q(r.getRecordSequence())
          + ",\"partition\":" + q(r.getPartitionToken())
          + ",\"table\":" + q(r.getTableName())
          + ",\"mod_type\":" + q(r.getModType().toString())
          + ",\"mods\":[" + mods + "]}\n";
      synchronized (Write.class) {
        Files.write(Paths.get(file), line.getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
      }
    }
  }

  public static void main(String[] a) throws Exception {
    PipelineOptions options = PipelineOptionsFactory.create();
    options.as(DirectOptions.class).setTargetParallelism(4);
    options.as(DirectOptions.class).setEnforceImmutability(false);
    options.as(DirectOptions.class).setEnforceEncodability(false);
    Pipeline p = Pipeline.create(options);
    SpannerConfig config = SpannerConfig.create()
        .withProjectId(a[1]).withInstanceId(a[2]).withDatabaseId(a[3]).withEmulatorHost(
            ValueProvider.StaticValueProvider.of(a[0]));
    p.apply(SpannerIO.readChangeStream()
            .withSpannerConfig(config)
            .withChangeStreamName(a[4])
            .withMetadataInstance(a[5])
            .withMetadataDatabase(a[6])
            .withInclusiveStartAt(Timestamp.parseTimestamp(a[7]))
            .withInclusiveEndAt(Timestamp.parseTimestamp(a[8])))
        .apply(ParDo.of(new Write(a[9])));
    System.out.println("STATE " + p.run().waitUntilFinish());
    System.exit(0);
  }
}
