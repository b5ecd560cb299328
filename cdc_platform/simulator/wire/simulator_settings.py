"""Settings of the simulator, which, together with its origin, determine its history."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import check_range
from cdc_platform.model.stream.records import ValueCaptureType

DAY_S: Final = 86_400
RETENTION_S: Final = 7 * DAY_S
"""Default retention of a change stream's records."""
VERSION_RETENTION_S: Final = 3600
"""Default retention of old versions of rows in Spanner."""
DEFAULT_PLACEMENT: Final = "placement_default"
"""Default placement, as in the name of its read function; it has the rows without another placement."""
_PLACEMENT: Final = re.compile("[A-Za-z][A-Za-z0-9_]*")


class Dialect(StrEnum):
    """The language of the database."""

    GOOGLESQL = "googlesql"
    """Change records are structs, read by `READ_stream`."""
    POSTGRESQL = "postgresql"
    """Change records are JSON objects, read by `spanner.read_json_stream`."""


class Fault(StrEnum):
    """Fault of a change stream query."""

    UNAVAILABLE = "unavailable"
    """It breaks off with UNAVAILABLE; what was sent had resume tokens."""
    UNAVAILABLE_WITHOUT_TOKENS = "unavailable-without-tokens"
    """It breaks off with UNAVAILABLE before any resume token was sent."""
    RST_STREAM = "rst-stream"
    """It breaks off with INTERNAL and RST_STREAM in the text; what was sent had resume tokens."""
    RST_STREAM_WITHOUT_TOKENS = "rst-stream-without-tokens"
    """It breaks off with INTERNAL and RST_STREAM in the text, before any resume token was sent."""
    RESOURCE_EXHAUSTED = "resource-exhausted"
    """It is rejected at once with RESOURCE_EXHAUSTED."""
    DEADLINE_EXCEEDED = "deadline-exceeded"
    """It breaks off with DEADLINE_EXCEEDED."""
    EARLY_END = "early-end"
    """It ends with OK after a part of its records, without the child partitions record if one is due.

    Random faults never include it for the query without a token, nor for two queries of a partition in a row.
    """
    STALLED = "stalled"
    """It becomes silent, without a heartbeat, until the stall is over or the caller gives up."""
    EXPIRED = "expired"
    """It is rejected because its records have expired, and so are later queries with such an early start."""
    READ_TIMESTAMP = "read-timestamp"
    """It answers `return_read_timestamp` with kint64max - 1, as in Spanner's documentation."""


PASSING_FAULTS: Final = tuple(fault for fault in Fault if fault is not Fault.EXPIRED)
"""All faults from which a reader can recover; expired records are lost to it."""


class PartitionMode(StrEnum):
    """Assignment of keys to partitions over time."""

    IMMUTABLE_KEY_RANGE = "IMMUTABLE_KEY_RANGE"
    """Partitions keep their keys until they end, and their children have the keys."""
    MUTABLE_KEY_RANGE = "MUTABLE_KEY_RANGE"
    """Keys move between partitions that continue, and records are messages that report this."""


class RootParents(StrEnum):
    """The `parent_partition_tokens` of the partitions from the query without a token."""

    NONE = "none"
    """An empty list, as the emulator sends."""
    NULL = "null"
    """A list with a NULL, as in Spanner's documentation. Debezium 3.6 fails on it."""


class RecordSequences(StrEnum):
    """The form of `record_sequence` in data change records."""

    NUMBERS = "numbers"
    """Eight decimal digits, as the emulator sends."""
    MIXED = "mixed"
    """A quarter of the transactions have pairs of hexadecimal numbers, such as
    `963d1af435fb3e79-00000000`, which is Spanner's newer form. Debezium 3.6 fails on them."""


class SchemaChangeKind(StrEnum):
    """Kind of a schema change in the history."""

    ADD_COLUMN = "add_column"
    """The table gets a column; earlier rows have NULL in it."""
    DROP_COLUMN = "drop_column"
    """The column is removed with its values."""
    RETYPE_COLUMN = "retype_column"
    """The column changes between STRING and BYTES, with its values."""
    ADD_TABLE = "add_table"
    """A table is created, and the change stream watches it if it watches all tables."""
    SET_CAPTURE = "set_capture"
    """The change stream captures other values from this time on."""
    SET_WATCHED = "set_watched"
    """The change stream watches other tables or columns from then on (`ALTER CHANGE STREAM ... SET FOR`)."""
    ADD_PLACEMENT = "add_placement"
    """A placement is added, and the change stream has a read function for it."""


@dataclass(frozen=True)
class SchemaChange:
    """One change, `at_s` seconds after the origin.

    `value` is the new column's or the retyped column's type in GoogleSQL (`STRING(MAX)`), the value capture
    type, what the change stream watches: `ALL`, or tables such as `accounts, transfers(amount, note)`; or the
    name of the placement.
    """

    at_s: float
    kind: SchemaChangeKind
    table: str = ""
    column: str = ""
    value: str = ""


@dataclass(frozen=True)
class SimulatorSettings:
    """Settings of the simulator's history; equal settings and origin make equal histories.

    * `seed`: seed of all random numbers.
    * `rate`: transactions per second. `accounts`: their initial number; each of the `banks` has its own two
      tables, `accounts` and `transfers`, then `accounts_2` and so on.
    * `partitions`: approximate number of live change stream partitions; each lives between
      `partition_life_s` and twice as long.
    * `keep_transfers`: the oldest transfers above this number are deleted, like by a TTL.
    * `preloaded_transfers`: rows from before the change stream, so that its records alone do not produce
      the tables; the accounts are from then, too.
    * `history_s`: length of the history before the simulator's start; `origin_micros` sets its exact
      beginning, and reproduces an earlier history.
    * `all_types`: adds a table with a column of every type. `document_bytes`: adds a table `documents`
      with rows of about that size.
    * `schema_changes` happen at their times, and `schema_change_every_s` adds more of them forever.
    * `faults` occur in change stream queries with the probability `fault_probability`; `stall_s` is the
      silence of a stalled one.
    * `partition_mode` is an option of the change stream; the transactions are the same in both modes.
    * `placements` are those in addition to the default one: the change stream has a read function for each,
      like with the option `per_placement_tvf`, which only streams with mutable key ranges support.
    * `root_parents` and `record_sequences` choose between Spanner's forms of records of immutable key
      ranges; some readers support only one.
    * `chunk_bytes`: values above this size are sent in several messages; the stock client accepts messages of
      at most 4 MiB from an emulator.
    """

    seed: int = 1
    dialect: Dialect = Dialect.GOOGLESQL
    rate: float = 250.0
    partitions: int = 8
    partition_life_s: float = 20.0
    accounts: int = 1000
    banks: int = 1
    keep_transfers: int = 100_000
    preloaded_transfers: int = 0
    all_types: bool = False
    document_bytes: int = 0
    value_capture_type: ValueCaptureType = ValueCaptureType.NEW_ROW
    schema_changes: tuple[SchemaChange, ...] = ()
    schema_change_every_s: float | None = None
    history_s: float = 0.0
    origin_micros: int | None = None
    retention_s: int = RETENTION_S
    version_retention_s: int = VERSION_RETENTION_S
    faults: tuple[Fault, ...] = ()
    fault_probability: float = 0.1
    stall_s: float = 5.0
    partition_mode: PartitionMode = PartitionMode.IMMUTABLE_KEY_RANGE
    placements: tuple[str, ...] = ()
    root_parents: RootParents = RootParents.NONE
    record_sequences: RecordSequences = RecordSequences.NUMBERS
    chunk_bytes: int = 1024 * 1024
    project: str = "simulated"
    instance: str = "simulator"
    database: str = "bank"
    change_stream: str = "bank_changes"

    def __post_init__(self) -> None:
        check_range(self, ("history_s", "stall_s"))
        check_range(self, ("preloaded_transfers",), at_least=0)
        positive = ("rate", "partition_life_s", "banks", "partitions", "chunk_bytes", "retention_s")
        check_range(self, (*positive, "schema_change_every_s"), above=0)
        check_range(self, ("accounts",), at_least=FEWEST_ACCOUNTS)
        check_range(self, ("fault_probability",), at_least=0, at_most=1)
        self._check_placements()

    def _check_placements(self) -> None:
        if self.placements and self.partition_mode is not PartitionMode.MUTABLE_KEY_RANGE:
            raise SettingError("placements", "need `partition_mode` MUTABLE_KEY_RANGE")
        kinds = {change.kind for change in self.schema_changes}
        if SchemaChangeKind.ADD_PLACEMENT in kinds and not self.placements:
            raise SettingError("schema_changes", "add a placement to a stream without `placements`")
        placements = [
            change.value for change in self.schema_changes if change.kind is SchemaChangeKind.ADD_PLACEMENT
        ]
        names = {DEFAULT_PLACEMENT}
        for name in (*self.placements, *placements):
            if _PLACEMENT.fullmatch(name) is None:
                raise SettingError("placements", f"must be letters, digits and _, but one is: {name!r}")
            # Their functions in GoogleSQL would have the same name.
            if name.lower() in names:
                raise SettingError("placements", f"has two entries with the name {name!r}")
            names.add(name.lower())

    @property
    def database_path(self) -> str:
        """Full resource name of the database."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"


FEWEST_ACCOUNTS: Final = 20
"""Fewer accounts would not be enough for a transaction of five rows."""
