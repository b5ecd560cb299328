"""Settings of a Datastream pipeline's source, and their JSON form for Spark's workers."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from string import Formatter
from typing import Final, TypeVar

from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import DAY_S, from_rfc3339
from cdc_platform.model.schema.schema_policy import SchemaPolicy
from cdc_platform.model.stream.files import MOST_BYTES, MOST_FILES
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.sources.datastream.settings.bounds import DEFAULT_BOUNDS, Bounds
from cdc_platform.sources.datastream.settings.declarations import ALL_TABLES, declared_type
from cdc_platform.sources.datastream.settings.kinds import SOURCE_KINDS, SourceKind
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy, KeylessPolicy, OrderBy
from cdc_platform.sources.datastream.settings.stream_settings import StreamSettings
from cdc_platform.sources.datastream.settings.table_names import name_by_template
from cdc_platform.sources.locations import DEADLINE_S, check_location

Value = TypeVar("Value")

TABLE_NAME_PARTS: Final = frozenset({"database", "schema", "table"})
MOST_BASENAMES: Final = 99
MOST_EPOCHS: Final = 9_999
_POSITIVE: Final = (
    *("deletion_marker_retention_s", "late_files_s", "most_files", "most_bytes", "deadline_s"),
    *("most_depth", "most_digits", "most_values", "most_block_bytes"),
)


@dataclass(frozen=True)
class DatastreamSettings:
    """Where a stream writes its files, and what its events mean.

    Tables are named as the source names them, such as `public.orders`, or as `table_name` does; `*` stands
    for every other one.

    Args:
        path: folder or object store prefix that the stream writes to.
        source: one of the six sources; None: each event's read method and metadata tell it.
        stream: resource name of the stream, whose state is then watched.
        datastream_host: address of an emulator that is asked for the state; None means Google's.
        table_name: name of the table that an event belongs to, from {database}, {schema} and {table}; a
            template without {database} routes the shards of a table into one. None: as the source has it.
        keys: columns of the key per table, where the events tell none, or another one.
        keyless: policy per table for those without a key.
        sequence_columns: column per table whose values order its events, in BigQuery's grammar.
        backfill_policy: whether rows of a backfill count more than captured changes.
        epochs: RFC 3339 moments, ascending. What happened at or after one follows everything before it: for
            logs that start over, and for repeated backfills (`force`). Declare one before its time comes.
        binlog_basenames: names of MySQL's binary logs without number, oldest first, where they changed.
        order_by: what comes first in the order of PostgreSQL and SQL Server.
        null_means_unchanged: columns per table in whose updates NULL stands for a value that was not sent.
        columns: types of columns per table and column, where files do not tell them.
        schema_policy: policy per table for changes of its schema.
        deletion_marker_retention_s: how long deletions are remembered, so that late events revive no row.
        late_files_s: for how long files and events may come late or again: repeated events are recognised
            within it.
        most_files: how many files one cycle reads at most.
        most_bytes: how many bytes one cycle reads at most, but always one file.
        most_depth: how deep lists and objects of an Avro schema lie in each other, and arrays of a value.
        most_digits: how many digits a decimal has before and after the point.
        most_values: how many values an event has: fields and items of arrays.
        most_block_bytes: how many bytes a line of JSON has, and a block of Avro once it is decompressed.
        deadline_s: within how many seconds the store has to give a first answer, whatever there is to list.
    """

    path: str
    source: str | None = None
    stream: str | None = None
    datastream_host: str | None = None
    table_name: str | None = None
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keyless: Mapping[str, str] = field(default_factory=dict)
    sequence_columns: Mapping[str, str] = field(default_factory=dict)
    backfill_policy: str = BackfillPolicy.INITIAL.value
    epochs: tuple[str, ...] = ()
    binlog_basenames: tuple[str, ...] = ()
    order_by: str = OrderBy.POSITION.value
    null_means_unchanged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    schema_policy: Mapping[str, str] = field(default_factory=dict)
    deletion_marker_retention_s: float = 7 * DAY_S
    late_files_s: float = 3 * DAY_S
    most_files: int = MOST_FILES
    most_bytes: int = MOST_BYTES
    most_depth: int = DEFAULT_BOUNDS.most_depth
    most_digits: int = DEFAULT_BOUNDS.most_digits
    most_values: int = DEFAULT_BOUNDS.most_values
    most_block_bytes: int = DEFAULT_BOUNDS.most_block_bytes
    deadline_s: float = DEADLINE_S

    def __post_init__(self) -> None:
        if not self.path.strip():
            raise SettingError("path", "is empty; write the folder or prefix that the stream writes to")
        check_location("path", self.path)
        if self.source is not None:
            _check_one_of("source", self.source, SOURCE_KINDS)
        if self.stream is not None:
            StreamSettings(self.stream, self.datastream_host)
        elif self.datastream_host is not None:
            raise SettingError(
                "stream", "is missing; `datastream_host` says where the stream's state is asked"
            )
        _check_one_of("backfill_policy", self.backfill_policy, BackfillPolicy)
        _check_one_of("order_by", self.order_by, OrderBy)
        _check_policies("keyless", self.keyless, KeylessPolicy)
        _check_policies("schema_policy", self.schema_policy, SchemaPolicy)
        _check_table_name(self.table_name)
        _check_column_lists("keys", self.keys)
        _check_column_lists("null_means_unchanged", self.null_means_unchanged)
        _check_types(self.columns)
        self._check_order()
        self._check_times()

    def _check_order(self) -> None:
        for table, column in self.sequence_columns.items():
            if not column.strip():
                raise SettingError(f"sequence_columns.{table}", "is empty; write the column's name")
        moments = [_moment(text) for text in self.epochs]
        if any(one >= other for one, other in pairwise(moments)):
            raise SettingError("epochs", f"must ascend, but are: {', '.join(self.epochs)}")
        if len(moments) > MOST_EPOCHS:
            raise SettingError("epochs", f"must be at most {MOST_EPOCHS}, but are: {len(moments)}")
        if self.backfill_policy == BackfillPolicy.FORCE and not moments:
            raise SettingError(
                "epochs", "is empty, so `force` would repair nothing; write when the repeated backfill begins"
            )
        names = self.binlog_basenames
        if len(set(names)) != len(names) or not all(names) or len(names) > MOST_BASENAMES:
            problem = f"must be at most {MOST_BASENAMES} different names, but is: {list(names)}"
            raise SettingError("binlog_basenames", problem)

    def _check_times(self) -> None:
        for name in _POSITIVE:
            if not 0 < getattr(self, name) < math.inf:
                raise SettingError(name, f"must be positive and finite, but is: {getattr(self, name)}")
        if self.deletion_marker_retention_s < self.late_files_s:
            raise SettingError(
                "deletion_marker_retention_s",
                f"must be at least `late_files_s`, {self.late_files_s}, or a late file could bring deleted "
                f"rows back; it is: {self.deletion_marker_retention_s}",
            )

    @property
    def bounds(self) -> Bounds:
        """What the reading of a file may ask for."""
        return Bounds(self.most_depth, self.most_digits, self.most_values, self.most_block_bytes)

    @property
    def epoch_micros(self) -> tuple[int, ...]:
        """The declared moments, in microseconds."""
        return tuple(_moment(text) for text in self.epochs)

    @property
    def title(self) -> str:
        """Name of the source as messages say it."""
        return f"Datastream files at {self.path}"

    @property
    def capabilities(self) -> SourceCapabilities:
        """What files promise of the changes in them: nothing about their order."""
        return SourceCapabilities(
            hands_out_events=True,
            keeps_transactions=False,
            comes_in_order=False,
            trusts_inserts=False,
            can_be_compared=False,
            can_be_copied=False,
            repeats_within_s=self.late_files_s,
            deletion_markers_s=self.deletion_marker_retention_s,
            leaves_values_out=bool(self.null_means_unchanged),
            values_fit=True,
            knows_addresses=self.source in (None, SourceKind.ORACLE.value),
            schema_policies=tuple(
                (table, SchemaPolicy(policy))
                for named, policy in sorted(self.schema_policy.items())
                for table in sorted({named, self._in_lake(named)})
            ),
        )

    @property
    def begins_at_present(self) -> bool:
        """Whether older rows come by a copy only: files of older rows are there, too."""
        return False

    def impatient(self, deadline_s: float) -> "DatastreamSettings":
        """Return the same with a store that has so long to answer."""
        return replace(self, deadline_s=min(deadline_s, self.deadline_s))

    def keyless_policy(self, table: str) -> KeylessPolicy:
        """Return what becomes of a table without a key."""
        return KeylessPolicy(self._of_table(self.keyless, table) or KeylessPolicy.APPEND)

    def declares_keyless(self, table: str) -> bool:
        """Whether the settings say what becomes of a table if it has no key."""
        return self._of_table(self.keyless, table) is not None

    def schema_policy_of(self, table: str) -> SchemaPolicy:
        """Return what happens when a table's schema changes."""
        return SchemaPolicy(self._of_table(self.schema_policy, table) or SchemaPolicy.EVOLVE)

    def declared_key(self, table: str) -> tuple[str, ...]:
        """Return the key that is declared for a table; empty where none is."""
        return self._of_table(self.keys, table) or ()

    def protected_columns(self, table: str) -> tuple[str, ...]:
        """Return the columns in whose updates NULL stands for a value that was not sent."""
        return self._of_table(self.null_means_unchanged, table) or ()

    def sequence_column(self, table: str) -> str | None:
        """Return the column that orders a table's events, if the user supplies one."""
        return self._of_table(self.sequence_columns, table)

    def _of_table(self, setting: Mapping[str, Value], table: str) -> Value | None:
        """Return what a setting says of a table, by its name in the lake or at the source, else of all."""
        for name in (table, *(named for named in setting if self._in_lake(named) == table), ALL_TABLES):
            if name in setting:
                return setting[name]
        return None

    def _in_lake(self, named: str) -> str:
        """Return the name that a table gets which a setting calls as the source does."""
        return name_by_template(self.table_name, *named.split(".")) or named

    def to_options(self) -> str:
        """Return the settings as JSON text, equal for equal settings."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_options(cls, text: str) -> "DatastreamSettings":
        """Return the settings of a JSON text that `to_options` made."""
        fields = json.loads(text)
        for name in ("epochs", "binlog_basenames"):
            fields[name] = tuple(fields[name])
        for name in ("keys", "null_means_unchanged"):
            fields[name] = {table: tuple(columns) for table, columns in fields[name].items()}
        return cls(**fields)


def _check_one_of(setting: str, value: str, allowed: Iterable[str]) -> None:
    known = [str(item) for item in allowed]
    if value not in known:
        raise SettingError(setting, f"must be one of {', '.join(known)}, but is: {value!r}")


def _check_policies(setting: str, policies: Mapping[str, str], allowed: Iterable[str]) -> None:
    for table, policy in policies.items():
        _check_one_of(f"{setting}.{table}", policy, allowed)


def _check_column_lists(setting: str, lists: Mapping[str, tuple[str, ...]]) -> None:
    for table, columns in lists.items():
        if not isinstance(columns, tuple) or not all(columns) or len(set(columns)) != max(len(columns), 1):
            raise SettingError(
                f"{setting}.{table}", f"must be a list of different column names, but is: {columns!r}"
            )


def _check_types(columns: Mapping[str, Mapping[str, str]]) -> None:
    for table, types in columns.items():
        for column, text in types.items():
            declared_type(text, f"columns.{table}.{column}")


def _check_table_name(template: str | None) -> None:
    if template is None:
        return
    try:
        fields = [field for field in Formatter().parse(template) if field[1] is not None]
    except ValueError:
        fields = []
    parts = {f"{name}{form}{conversion or ''}" for _, name, form, conversion in fields}
    if "table" not in parts or not parts <= TABLE_NAME_PARTS:
        raise SettingError(
            "table_name",
            "must be made of {table} and, where wanted, {database} and {schema}, such as {schema}.{table}, "
            f"but is: {template!r}",
        )


def _moment(text: str) -> int:
    try:
        return from_rfc3339(text)
    except ValueError as error:
        raise SettingError("epochs", f"must look like 2026-01-31T08:00:00Z, but one is: {text!r}") from error
