import java.io.FileNotFoundException;
import java.io.IOError;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.sql.SQLException;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.jdbc.UncheckedSQLException;
import org.apache.iceberg.spark.SparkCatalog;
import org.apache.iceberg.spark.SparkUtil;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A Spark catalog whose every durable effect is a point at which the process may die. */
public class MortalCatalog extends SparkCatalog {
  private static final String SOCKET = "crash-points";

  /** Stands for the end of the process: code that catches it can cause no further effect. */
  static class Died extends RuntimeException {
    Died(String effect) {
      super("the process died at: " + effect);
    }
  }

  /** Stands for an error of the system; the effect raises what Hadoop or the driver would raise. */
  static class Failed extends RuntimeException {
    Failed(String text) {
      super(text);
    }

    IOException ofFile() {
      return new IOException(getMessage());
    }

    SQLException ofCatalog() {
      return new SQLException(
          switch (getMessage()) {
            case "No space left on device" -> "[SQLITE_FULL] (database or disk is full)";
            case "Read-only file system" -> "[SQLITE_READONLY] (attempt to write a readonly database)";
            default -> "[SQLITE_IOERR] (disk I/O error)";
          });
    }
  }

  @Override
  protected Catalog buildIcebergCatalog(String name, CaseInsensitiveStringMap options) {
    Configuration conf = SparkUtil.hadoopConfCatalogOverrides(SparkSession.active(), name);
    Map<String, String> properties = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    properties.putAll(options.asCaseSensitiveMap());
    properties.remove("type");
    String socket = properties.get(SOCKET);
    Tables tables = new Tables(conf, socket);
    tables.setConf(conf);
    tables.initialize(name, properties);
    return tables;
  }

  /** Asks the harness before and after an effect. */
  static class Points {
    private final String socket;

    Points(String socket) {
      this.socket = socket;
    }

    /** Does an effect that happens at once or not at all. */
    <T> T effect(String kind, String what, Supplier<T> act) {
      String number = before(kind, what);
      T result = act.get();
      pass("after", number, what);
      return result;
    }

    /** Returns the number of an effect that is about to happen. */
    String before(String kind, String what) {
      return pass("before", kind, what);
    }

    String pass(String moment, String detail, String what) {
      String answer = ask(moment + "\t" + detail + "\t" + what);
      if (answer.equals("die")) {
        throw new Died(what);
      }
      if (answer.startsWith("fail ")) {
        throw new Failed(answer.substring(5));
      }
      return answer;
    }

    private String ask(String question) {
      try (SocketChannel channel = SocketChannel.open(UnixDomainSocketAddress.of(socket))) {
        channel.write(ByteBuffer.wrap((question + "\n").getBytes(StandardCharsets.UTF_8)));
        ByteBuffer answer = ByteBuffer.allocate(64);
        while (channel.read(answer) >= 0) {}
        return new String(answer.array(), 0, answer.position(), StandardCharsets.UTF_8);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  static class Tables extends JdbcCatalog {
    private final Points points;

    Tables(Configuration conf, String socket) {
      super(properties -> new Files(conf, socket), null, true);
      this.points = new Points(socket);
    }

    @Override
    protected TableOperations newTableOps(TableIdentifier table) {
      return new Operations(super.newTableOps(table), points, table.toString());
    }

    @Override
    public boolean dropTable(TableIdentifier table, boolean purge) {
      return points.effect("drop", table.toString(), () -> super.dropTable(table, purge));
    }
  }

  static class Operations implements TableOperations {
    private final TableOperations real;
    private final Points points;
    private final String table;

    Operations(TableOperations real, Points points, String table) {
      this.real = real;
      this.points = points;
      this.table = table;
    }

    @Override
    public void commit(TableMetadata base, TableMetadata metadata) {
      // The metadata file is written within, as an effect of its own.
      String number;
      try {
        number = points.before("commit", table);
      } catch (Failed failed) {
        throw failed.getMessage().startsWith("refused")
            ? new CommitFailedException("%s", failed.getMessage())
            : new UncheckedSQLException(failed.ofCatalog(), "Unknown failure");
      }
      real.commit(base, metadata);
      points.pass("after", number, table);
    }

    @Override
    public TableMetadata current() {
      return real.current();
    }

    @Override
    public TableMetadata refresh() {
      return real.refresh();
    }

    @Override
    public FileIO io() {
      return real.io();
    }

    @Override
    public EncryptionManager encryption() {
      return real.encryption();
    }

    @Override
    public String metadataFileLocation(String name) {
      return real.metadataFileLocation(name);
    }

    @Override
    public LocationProvider locationProvider() {
      return real.locationProvider();
    }

    @Override
    public TableOperations temp(TableMetadata metadata) {
      return real.temp(metadata);
    }

    @Override
    public long newSnapshotId() {
      return real.newSnapshotId();
    }

    @Override
    public boolean requireStrictCleanup() {
      return real.requireStrictCleanup();
    }
  }

  /** The files of a lake on this machine. */
  public static class Files extends HadoopFileIO {
    private final String socket;

    public Files(Configuration conf, String socket) {
      super(conf);
      this.socket = socket;
    }

    @Override
    public OutputFile newOutputFile(String path) {
      return new Output(super.newOutputFile(path), new Points(socket));
    }

    @Override
    public void deleteFile(String path) {
      try {
        new Points(socket)
            .effect(
                "delete",
                path,
                () -> {
                  super.deleteFile(path);
                  return null;
                });
      } catch (Failed failed) {
        throw new RuntimeIOException(failed.ofFile(), "Failed to delete file: %s", path);
      }
    }

    @Override
    public void deleteFiles(Iterable<String> paths) {
      paths.forEach(this::deleteFile);
    }
  }

  static class Output implements OutputFile {
    private final OutputFile real;
    private final Points points;

    Output(OutputFile real, Points points) {
      this.real = real;
      this.points = points;
    }

    @Override
    public PositionOutputStream create() {
      return new Stream(points, begin(), real.location(), real.create());
    }

    @Override
    public PositionOutputStream createOrOverwrite() {
      return new Stream(points, begin(), real.location(), real.createOrOverwrite());
    }

    private String begin() {
      try {
        return points.before("write", real.location());
      } catch (Failed failed) {
        IOException error = new FileNotFoundException(real.location() + " (" + failed.getMessage() + ")");
        throw new RuntimeIOException(error, "Failed to create file: %s", real.location());
      }
    }

    @Override
    public String location() {
      return real.location();
    }

    @Override
    public InputFile toInputFile() {
      return real.toInputFile();
    }
  }

  static class Stream extends PositionOutputStream {
    private final PositionOutputStream real;
    private final Points points;
    private final String number;
    private final String path;
    private boolean closed;

    Stream(Points points, String number, String path, PositionOutputStream real) {
      this.real = real;
      this.points = points;
      this.number = number;
      this.path = path;
    }

    @Override
    public long getPos() throws IOException {
      return real.getPos();
    }

    @Override
    public long storedLength() throws IOException {
      return real.storedLength();
    }

    @Override
    public void write(int value) throws IOException {
      real.write(value);
    }

    @Override
    public void write(byte[] bytes, int from, int length) throws IOException {
      real.write(bytes, from, length);
    }

    @Override
    public void flush() throws IOException {
      real.flush();
    }

    @Override
    public void close() throws IOException {
      if (closed) {
        return;
      }
      closed = true;
      real.close();
      if (points.pass("within", number, path).equals("tear")) {
        tear();
      }
      try {
        points.pass("after", number, path);
      } catch (Failed failed) {
        // Hadoop's local file system takes a failing write for an error of the machine.
        throw new IOError(failed.ofFile());
      }
    }

    /** Leaves half of the file, as a process that is killed while it writes. */
    private void tear() throws IOException {
      Path file = Path.of(path.replaceFirst("^file:/*", "/"));
      try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
        channel.truncate(channel.size() / 2);
      }
    }
  }
}
