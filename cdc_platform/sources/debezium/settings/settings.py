"""Settings of a Debezium stream, and their JSON form for Spark's workers."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import DAY_S
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.sources.debezium.settings.connector import (
    MODES,
    PROPERTIES,
    ConnectorModes,
    check_member,
    modes_told,
    properties_told,
)
from cdc_platform.sources.debezium.settings.engine_settings import EngineSettings, Snapshot
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.wire.lines import MOST_UNPACKED_BYTES
from cdc_platform.sources.locations import check_location

DEDUP_WINDOW_MAX_S: Final = 31 * DAY_S
_TEMPLATE_WORDS: Final = re.compile(r"\{(\w*)\}")
_TEMPLATE_NAMES: Final = frozenset({"database", "schema", "table"})


class Strategy(StrEnum):
    """What becomes of a value that the source did not send."""

    OMIT = "omit"
    """The merge leaves the column out: the stored value stays. The log keeps the column unavailable."""
    VETO = "veto"
    """The change names the column, marked as unavailable, and the table vetoes the change of this value."""
    ENRICH = "enrich"
    """The log itself is completed from the batch and the tables, so that every reader sees whole rows."""


class SnapshotPolicy(StrEnum):
    """What a repeated snapshot does to rows that it does not have."""

    MERGE = "merge"
    """They stay, and are reported."""
    REPLACE = "replace"
    """They go: the snapshot is the whole table."""


class NullPolicy(StrEnum):
    """What a null means in an update, where the column's type has no marker for an unavailable value."""

    UNAVAILABLE = "unavailable"
    """The value was not sent: a real change to NULL is missed."""
    NULL = "null"
    """The value is NULL: a value that was not sent is lost."""
    ERROR = "error"
    """The event goes to quarantine until somebody chooses."""


@dataclass(frozen=True)
class FilesInput:
    """JSON-line files, gzip or not, whose lines are in the order of arrival; a gzip's text is bounded."""

    path: str
    most_unpacked_bytes: int = MOST_UNPACKED_BYTES

    def __post_init__(self) -> None:
        check_location("input.files.path", self.path)
        if self.most_unpacked_bytes <= 0:
            problem = f"must be positive, but is: {self.most_unpacked_bytes}"
            raise SettingError("input.files.most_unpacked_bytes", problem)


@dataclass(frozen=True)
class EngineInput:
    """The engine, straight from PostgreSQL.

    Args:
        host: the database server.
        database: the database.
        user: a role with LOGIN and REPLICATION that may read the tables.
        spool: folder into which the engine writes what it captures, until the lake has it.
        password: the role's.
        port: of the server.
        tables: regular expressions of SCHEMA.TABLE; none means all.
        slot: replication slot, made where it is missing.
        publication: made where it is missing.
        topic_prefix: first part of every topic's name.
        snapshot: what is read before the changes.
        properties: further properties of the connector.
        keep_spool_s: files of the spool that the lake has whole are deleted after so many seconds.
    """

    host: str
    database: str
    user: str
    spool: str
    password: str = field(default="", repr=False)
    port: int = 5432
    tables: tuple[str, ...] = ()
    slot: str = "cdc_platform"
    publication: str = "cdc_platform"
    topic_prefix: str = "cdc"
    snapshot: Snapshot = Snapshot.INITIAL
    properties: Mapping[str, str] = field(default_factory=dict)
    keep_spool_s: float = DAY_S

    def __post_init__(self) -> None:
        check_member("input.engine.snapshot", self.snapshot, Snapshot)
        if not 0 <= self.keep_spool_s < math.inf:
            problem = f"must be 0 or more and finite, but is: {self.keep_spool_s}"
            raise SettingError("input.engine.keep_spool_s", problem)

    def engine_settings(self) -> EngineSettings:
        """Return what the engine is told."""
        told = self.__dataclass_fields__.keys() - {"keep_spool_s"}
        return EngineSettings(**{name: getattr(self, name) for name in told})


_INPUTS: Final[Mapping[str, type[FilesInput | KafkaInput | EngineInput]]] = {
    "files": FilesInput,
    "kafka": KafkaInput,
    "engine": EngineInput,
}

Input = FilesInput | KafkaInput | EngineInput
PerColumn = Mapping[str, Mapping[str, str]]
"""Of a table, of a column."""


@dataclass(frozen=True)
class DebeziumSettings:
    """Where events come from, and what they do not say themselves.

    Tables are named as they are in the lake, by `table_name`, after `partitions` has sent the partitions of
    a table to it.

    Args:
        input: where the events are.
        connector: how the connector was set up.
        columns: PostgreSQL types of columns, by table; needed where events carry no schema block.
        keys: key columns by table, none for a table without a key; needed where events are stored without
            their keys.
        ignored_columns: columns by table that stay out of the lake, such as generated ones.
        column_placeholders: what an unavailable value looks like where the connector masks the column: the
            text itself, `truncate:LENGTH`, or `hash:ALGORITHM:SALT[:LENGTH]`.
        null_policies: what null means in updates of columns whose type has no marker; by `TABLE.COLUMN`, by
            type such as `numeric` or `smallint[]`, or `*` for all others, which is `error` otherwise.
        full_identity: tables whose replica identity is FULL, as far as the events cannot tell.
        strategy: what becomes of unavailable values.
        has_transaction_topic: whether the connector provides transaction metadata.
        snapshots: what a repeated snapshot does to rows that it does not have.
        table_name: name of a table in the lake, of `{database}`, `{schema}` and `{table}`.
        partitions: regular expressions of `SCHEMA.TABLE`, each with the SCHEMA.TABLE that it belongs to.
        signal_table: SCHEMA.TABLE of the connector's signals, which never becomes a table.
        dedup_window_s: for how long an event may come again.
        captures: whether an engine is started where one is asked for; whoever only looks does without.
    """

    input: Input
    connector: ConnectorModes = field(default_factory=ConnectorModes)
    columns: PerColumn = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    column_placeholders: PerColumn = field(default_factory=dict)
    null_policies: Mapping[str, NullPolicy] = field(default_factory=dict)
    full_identity: tuple[str, ...] = ()
    strategy: Strategy = Strategy.OMIT
    has_transaction_topic: bool = False
    snapshots: SnapshotPolicy = SnapshotPolicy.MERGE
    table_name: str = "{schema}.{table}"
    partitions: Mapping[str, str] = field(default_factory=dict)
    signal_table: str | None = None
    dedup_window_s: float = DAY_S
    captures: bool = True

    def __post_init__(self) -> None:
        check_member("strategy", self.strategy, Strategy)
        check_member("snapshots", self.snapshots, SnapshotPolicy)
        for name, policy in self.null_policies.items():
            check_member(f"null_policies.{name}", policy, NullPolicy)
            _check_policy_name(name)
        _check_template(self.table_name)
        for pattern, target in self.partitions.items():
            _check_partition(pattern, target)
        if not 0 < self.dedup_window_s <= DEDUP_WINDOW_MAX_S:
            problem = f"must be above 0 and at most {DEDUP_WINDOW_MAX_S:.0f} s, but is: {self.dedup_window_s}"
            raise SettingError("dedup_window_s", problem)

    @property
    def capabilities(self) -> SourceCapabilities:
        """What the connector promises: one order, and whole transactions where it provides their metadata."""
        return SourceCapabilities(
            hands_out_events=True,
            keeps_transactions=self.tells_transactions,
            comes_in_order=True,
            trusts_inserts=False,
            can_be_compared=False,
            can_be_copied=False,
            repeats_within_s=self.dedup_window_s,
            leaves_values_out=True,
            has_keyless_tables=True,
            completes_log=self.strategy == Strategy.ENRICH,
        )

    @property
    def tells_transactions(self) -> bool:
        """Whether it is known which transactions are whole; our own engine always tells."""
        return self.has_transaction_topic or isinstance(self.input, EngineInput)

    @property
    def folder(self) -> str:
        """Where the files of events are."""
        return self.input.spool if isinstance(self.input, EngineInput) else getattr(self.input, "path", "")

    @property
    def most_unpacked_bytes(self) -> int:
        """How many bytes of text a gzip has at most."""
        return self.input.most_unpacked_bytes if isinstance(self.input, FilesInput) else MOST_UNPACKED_BYTES

    @property
    def title(self) -> str:
        """Name of the source as messages say it."""
        return f"Debezium events of {_title(self.input)}"

    @property
    def begins_at_present(self) -> bool:
        """Whether older rows come by a copy only: the connector's snapshot tells them."""
        return False

    def impatient(self, deadline_s: float) -> "DebeziumSettings":
        """Return the same without an engine of its own, and with brokers that have so long to answer."""
        found = self.input
        if isinstance(found, KafkaInput):
            found = replace(found, timeout_s=min(deadline_s, found.timeout_s))
        return replace(self, captures=False, input=found)

    def without_password(self) -> "DebeziumSettings":
        """Return what tasks need to know."""
        if isinstance(self.input, EngineInput):
            return replace(self, input=replace(self.input, password=""))
        if isinstance(self.input, KafkaInput):
            return replace(self, input=replace(self.input, options={}, client={}))
        return self

    def to_options(self) -> str:
        """Return the settings as JSON text, equal for equal settings."""
        kinds = {kind: name for name, kind in _INPUTS.items()}
        fields = {**asdict(self), "input": {kinds[type(self.input)]: asdict(self.input)}}
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_options(cls, text: str) -> "DebeziumSettings":
        """Return the settings of a JSON text that `to_options` made."""
        return cls.from_fields(json.loads(text))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "DebeziumSettings":
        """Return the settings of a JSON object, whose members may be left out where they have a default.

        Raises:
            SettingError: a member is not known, or cannot be what it is.
        """
        _check_names("", fields, cls)
        read = {name: _READERS.get(name, _as_is)(value) for name, value in fields.items()}
        if "input" not in read:
            raise SettingError("input", f"is missing; write one of {', '.join(_INPUTS)}")
        found = read["input"]
        if isinstance(found, EngineInput):
            read["connector"] = _agreed(fields.get("connector") or {}, found)
            told = {**properties_told(read["connector"]), **found.properties}
            read["input"] = replace(found, properties=told)
        return cls(**read)


def _title(found: Input) -> str:
    if isinstance(found, KafkaInput):
        return f"the topics {found.topics_pattern} of {found.bootstrap_servers}"
    if isinstance(found, EngineInput):
        return f"the database {found.database} on {found.host}:{found.port}"
    return f"the files in {found.path}"


def _as_is(value: Any) -> Any:
    return value


def _read_input(value: Any) -> Input:
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in _INPUTS:
        raise SettingError("input", f"must have exactly one of {', '.join(_INPUTS)}, but is: {value!r}")
    ((name, fields),) = value.items()
    kind = _INPUTS[name]
    _check_names(f"input.{name}.", fields, kind)
    read: dict[str, Any] = {key: tuple(item) if key == "tables" else item for key, item in fields.items()}
    missing = [key for key in _REQUIRED[name] if not str(read.get(key) or "").strip()]
    if missing:
        raise SettingError(f"input.{name}.{missing[0]}", "is missing or empty")
    if "snapshot" in read:
        check_member(f"input.{name}.snapshot", read["snapshot"], Snapshot)
        read["snapshot"] = Snapshot(read["snapshot"])
    return kind(**read)


_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "files": ("path",),
    "kafka": ("bootstrap_servers", "topics_pattern"),
    "engine": ("host", "database", "user", "spool"),
}


def _read_modes(value: Any) -> ConnectorModes:
    _check_names("connector.", value, ConnectorModes)
    read: dict[str, Any] = {}
    for name, text in value.items():
        kind = MODES.get(name)
        if kind is not None:
            check_member(f"connector.{name}", text, kind)
        read[name] = text if kind is None else kind(text)
    return ConnectorModes(**read)


def _agreed(given: Mapping[str, Any], engine: EngineInput) -> ConnectorModes:
    """Return the modes of an engine, be they told by its properties or as a connector's.

    Raises:
        SettingError: both tell one, and they differ.
    """
    told = modes_told(engine.properties)
    for name in told.keys() & given.keys():
        if told[name] != given[name]:
            raise SettingError(
                f"connector.{name}",
                f"is {given[name]!r}, and `{PROPERTIES[name]}` of the engine's properties is {told[name]!r}: "
                "leave one of them out",
            )
    return _read_modes({**given, **told})


def _read_names(value: Any) -> dict[str, tuple[str, ...]]:
    return {table: tuple(names) for table, names in value.items()}


def _read_policies(value: Any) -> dict[str, NullPolicy]:
    for name, policy in value.items():
        check_member(f"null_policies.{name}", policy, NullPolicy)
    return {name: NullPolicy(policy) for name, policy in value.items()}


def _read_strategy(value: Any) -> Strategy:
    check_member("strategy", value, Strategy)
    return Strategy(value)


def _read_snapshots(value: Any) -> SnapshotPolicy:
    check_member("snapshots", value, SnapshotPolicy)
    return SnapshotPolicy(value)


_READERS: Final[Mapping[str, Any]] = {
    "input": _read_input,
    "connector": _read_modes,
    "keys": _read_names,
    "ignored_columns": _read_names,
    "null_policies": _read_policies,
    "full_identity": tuple,
    "strategy": _read_strategy,
    "snapshots": _read_snapshots,
}


def _check_names(prefix: str, fields: Mapping[str, Any], kind: type) -> None:
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]  # callers give dataclasses
    for name in fields:
        if name not in known:
            raise SettingError(f"{prefix}{name}", f"is not known; there are: {', '.join(known)}")


def _check_policy_name(name: str) -> None:
    if "." not in name and "(" in name:
        raise SettingError(f"null_policies.{name}", "has sizes: name the type without them, or TABLE.COLUMN")


def _check_template(template: str) -> None:
    words = _TEMPLATE_WORDS.findall(template)
    if "table" not in words or not set(words) <= _TEMPLATE_NAMES:
        names = "{database}, {schema} and {table}, the last one at least"
        raise SettingError("table_name", f"must be made of {names}, but is: {template!r}")


def _check_partition(pattern: str, target: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise SettingError("partitions", f"has what is no regular expression: {pattern!r}") from error
    if not all(target.partition(".")):
        raise SettingError("partitions", f"must lead to SCHEMA.TABLE, but leads to: {target!r}")
