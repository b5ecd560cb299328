"""Settings of a Datastream pipeline's source, and their JSON form for Spark's workers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Final, Self, TypeVar

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import Described, check_members, check_range, micros_of_setting
from cdc_platform.model.base.timestamps import DAY_S
from cdc_platform.model.schema.schema_policy import SchemaPolicy
from cdc_platform.model.stream.files import MAX_BYTES, MAX_FILES
from cdc_platform.model.stream.source_capabilities import SourceCapabilities, SourceSettings
from cdc_platform.sources.datastream.settings.bounds import DEFAULT_BOUNDS, Bounds
from cdc_platform.sources.datastream.settings.declarations import ALL_TABLES, check_column_lists, declarations
from cdc_platform.sources.datastream.settings.kinds import DOCUMENT_ID, LOG_PLACES, SourceKind
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy, KeylessPolicy, OrderBy
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings
from cdc_platform.sources.datastream.settings.table_names import name_by_template
from cdc_platform.sources.locations import DEADLINE_S, check_location
from cdc_platform.sources.table_templates import check_table_name

Value = TypeVar("Value")

MAX_BASENAMES: Final = 99
MAX_EPOCHS: Final = 9_999
_POSITIVE: Final = (
    *("deletion_marker_retention_s", "late_files_s", "max_files", "max_bytes", "deadline_s"),
    *("max_depth", "max_digits", "max_values", "max_block_bytes"),
)


@dataclass(frozen=True)
class DatastreamSettings(SourceSettings):
    """Location of a stream's files, and the meaning of its events.

    Tables have their names at the source, such as `public.orders`, or those of `table_name`; `*` stands for
    all other tables.
    """

    path: Annotated[
        str,
        Described(
            "Folder or object store prefix that the stream writes to, such as `gs://bucket/prefix`. "
            "A relative folder is relative to the folder of this file.",
            is_path=True,
        ),
    ]
    source: Annotated[
        SourceKind | None,
        Described("What the stream reads; empty: detected from the read method and metadata of each event."),
    ] = None
    stream: Annotated[
        str | None,
        Described(
            "Resource name of the stream, `projects/PROJECT/locations/LOCATION/streams/STREAM`, whose state "
            "is then shown and checked; needs the extra `datastream`."
        ),
    ] = None
    datastream_host: Annotated[
        str | None,
        Described(
            "HOST:PORT of an emulator of Datastream's API, asked without credentials; empty: "
            "Google's. Only with `stream`."
        ),
    ] = None
    table_name: Annotated[
        str | None,
        Described(
            "Name of a table in the lake, made of {database} (for Salesforce the domain), {schema} and "
            "{table}; must contain {table}. Without {database}, shards become one. Empty: as at the source."
        ),
    ] = None
    keys: Annotated[
        Mapping[str, tuple[str, ...]],
        Described("Key columns per table, if the events name none, or to choose another key."),
    ] = field(default_factory=dict)
    keyless: Annotated[
        Mapping[str, KeylessPolicy],
        Described(
            "Policy for tables without a key, per table: `append` (each event is a row), `row_hash`"
            " (equal rows are one), or `refuse` (they go to quarantine); by default `append`."
        ),
    ] = field(default_factory=dict)
    sequence_columns: Annotated[
        Mapping[str, str],
        Described("Column per table whose values order its events, in BigQuery's grammar of such numbers."),
    ] = field(default_factory=dict)
    backfill_policy: Annotated[
        BackfillPolicy,
        Described(
            "Captured changes that override a backfilled row: all (`initial`), only later ones "
            "(`by_source_timestamp`), or none before an epoch (`force`)."
        ),
    ] = BackfillPolicy.INITIAL
    epochs: Annotated[
        tuple[str, ...],
        Described(
            "Times, RFC 3339, in quotes, ascending: changes at or after one follow all earlier "
            "changes, for logs that start over and repeated backfills. Declare each one in advance."
        ),
    ] = ()
    binlog_basenames: Annotated[
        tuple[str, ...],
        Described("Names of MySQL's binary logs without their number, oldest first, if they have changed."),
    ] = ()
    order_by: Annotated[
        OrderBy,
        Described(
            "First criterion of the order for PostgreSQL and SQL Server: position in the log, or "
            "timestamp. A timestamp survives a restore that starts the log over, but not a clock "
            "that goes back."
        ),
    ] = OrderBy.POSITION
    null_means_unchanged: Annotated[
        Mapping[str, tuple[str, ...]],
        Described("Columns per table in whose updates NULL stands for a large value that was not sent."),
    ] = field(default_factory=dict)
    columns: Annotated[
        Mapping[str, Mapping[str, str]],
        Described("Types of columns, per table and column, if JSON files lack them."),
    ] = field(default_factory=dict)
    schema_policy: Annotated[
        Mapping[str, SchemaPolicy],
        Described(
            "What happens when a table's schema changes, per table: `evolve`, `freeze` or "
            "`quarantine`; by default `evolve`."
        ),
    ] = field(default_factory=dict)
    deletion_marker_retention_s: Annotated[
        float,
        Described(
            "Seconds for which a deleted row is remembered after its deletion was read, so that no "
            "late event brings it back; at least `late_files_s`."
        ),
    ] = 7 * DAY_S
    late_files_s: Annotated[
        float,
        Described(
            "Seconds for which files and events may come late or again; repeated ones are "
            "recognised within this time."
        ),
    ] = 3 * DAY_S
    max_files: Annotated[int, Described("Maximum number of files per cycle.")] = MAX_FILES
    max_bytes: Annotated[
        int, Described("Maximum bytes per cycle; a cycle always reads at least one file.")
    ] = MAX_BYTES
    max_depth: Annotated[
        int,
        Described(
            "Maximum nesting of lists and objects in an Avro schema, and of arrays in a value; beyond "
            "it, the file or record is a fault."
        ),
    ] = DEFAULT_BOUNDS.max_depth
    max_digits: Annotated[
        int, Described("Maximum digits of a decimal in an Avro schema, before and after the point.")
    ] = DEFAULT_BOUNDS.max_digits
    max_values: Annotated[
        int,
        Described(
            "Maximum number of values in an event: fields, and items of arrays; an event with more is "
            "a fault."
        ),
    ] = DEFAULT_BOUNDS.max_values
    max_block_bytes: Annotated[
        int,
        Described(
            "Maximum bytes of a JSON line, and of a decompressed Avro block; anything longer is a fault."
        ),
    ] = DEFAULT_BOUNDS.max_block_bytes
    deadline_s: Annotated[
        float,
        Described("Seconds to wait for the store's first answer; a sensor waits at most 10 s."),
    ] = DEADLINE_S

    def __post_init__(self) -> None:
        if not self.path.strip():
            raise SettingError("path", "is empty; write the stream's folder or prefix")
        check_location("path", self.path)
        check_members(self)
        if self.stream is not None:
            StreamSettings(self.stream, self.datastream_host)
        elif self.datastream_host is not None:
            raise SettingError("stream", "is missing; `datastream_host` is the host of its state")
        check_table_name(self.table_name or "{table}")
        check_column_lists("keys", self.keys)
        check_column_lists("null_means_unchanged", self.null_means_unchanged)
        declarations(self.columns, "columns")
        self._check_order()
        self._check_times()

    def _check_order(self) -> None:
        for table, column in self.sequence_columns.items():
            if not column.strip():
                raise SettingError(f"sequence_columns.{table}", "is empty; write the column's name")
        moments = self.epoch_micros
        if any(earlier >= other for earlier, other in pairwise(moments)):
            raise SettingError("epochs", f"must ascend, but are: {', '.join(self.epochs)}")
        if len(moments) > MAX_EPOCHS:
            raise SettingError("epochs", f"must be at most {MAX_EPOCHS}, but are: {len(moments)}")
        if self.backfill_policy == BackfillPolicy.FORCE and not moments:
            reason = "is empty, so `backfill_policy` force would repair nothing; write when a backfill begins"
            raise SettingError("epochs", reason)
        names = self.binlog_basenames
        if len(set(names)) != len(names) or not all(names) or len(names) > MAX_BASENAMES:
            problem = f"must be at most {MAX_BASENAMES} different names, but is: {list(names)}"
            raise SettingError("binlog_basenames", problem)

    def _check_times(self) -> None:
        check_range(self, _POSITIVE, above=0)
        if self.deletion_marker_retention_s < self.late_files_s:
            raise SettingError(
                "deletion_marker_retention_s",
                f"must be at least `late_files_s`, {self.late_files_s}, or a late file could bring deleted "
                f"rows back; it is: {self.deletion_marker_retention_s}",
            )

    @property
    def bounds(self) -> Bounds:
        """Limits for reading a file."""
        return Bounds(self.max_depth, self.max_digits, self.max_values, self.max_block_bytes)

    @property
    def epoch_micros(self) -> tuple[int, ...]:
        """The declared times, in microseconds."""
        return tuple(micros_of_setting("epochs", text) for text in self.epochs)

    @property
    def folder(self) -> str:
        """Location of the stream's files."""
        return self.path

    @property
    def title(self) -> str:
        """Name of the source in messages."""
        return f"Datastream files at {self.path}"

    @property
    def capabilities(self) -> SourceCapabilities:
        """Guarantees of files about their changes: none about the order."""
        return SourceCapabilities(
            delivers_events=True,
            keeps_transactions=False,
            comes_in_order=False,
            trusts_inserts=False,
            can_be_compared=False,
            can_be_copied=False,
            repeats_within_s=self.late_files_s,
            deletion_markers_s=self.deletion_marker_retention_s,
            leaves_values_out=bool(self.null_means_unchanged),
            document_key=DOCUMENT_ID if self.source in (None, SourceKind.MONGODB) else None,
            values_fit=True,
            log_places=LOG_PLACES,
            knows_addresses=self.source in (None, SourceKind.ORACLE),
            schema_policies=tuple(
                (table, SchemaPolicy(policy))
                for source, policy in sorted(self.schema_policy.items())
                for table in sorted({source, self._in_lake(source)})
            ),
        )

    def with_deadline(self, deadline_s: float) -> Self:
        """Return the same settings with a deadline for the store."""
        return replace(self, deadline_s=min(deadline_s, self.deadline_s))

    def keyless_policy(self, table: str) -> KeylessPolicy:
        """Return the policy for a table without a key."""
        return KeylessPolicy(self._of_table(self.keyless, table) or KeylessPolicy.APPEND)

    def declares_keyless(self, table: str) -> bool:
        """Return whether the settings have a policy for a table in case it has no key."""
        return self._of_table(self.keyless, table) is not None

    def schema_policy_of(self, table: str) -> SchemaPolicy:
        """Return the policy for changes of a table's schema."""
        return SchemaPolicy(self._of_table(self.schema_policy, table) or SchemaPolicy.EVOLVE)

    def declared_key(self, table: str) -> tuple[str, ...]:
        """Return the declared key of a table; empty without one."""
        return self._of_table(self.keys, table) or ()

    def protected_columns(self, table: str) -> tuple[str, ...]:
        """Return the columns in whose updates NULL stands for a value that was not sent."""
        return self._of_table(self.null_means_unchanged, table) or ()

    def sequence_column(self, table: str) -> str | None:
        """Return the column that orders a table's events, if the user supplies one."""
        return self._of_table(self.sequence_columns, table)

    def _of_table(self, setting: Mapping[str, Value], table: str) -> Value | None:
        """Return a setting's value for a table, by its name in the lake or at the source, else for `*`."""
        for name in (table, *(source for source in setting if self._in_lake(source) == table), ALL_TABLES):
            if name in setting:
                return setting[name]
        return None

    def _in_lake(self, source: str) -> str:
        """Return the lake's name of a table that a setting names as the source does."""
        return name_by_template(self.table_name, *source.split(".")) or source
