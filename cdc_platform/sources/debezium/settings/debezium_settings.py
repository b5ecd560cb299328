"""Settings of a Debezium stream, and their JSON form for Spark's workers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Self

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import (
    Described,
    check_filled,
    check_members,
    check_range,
    read_settings,
)
from cdc_platform.model.base.timestamps import DAY_S
from cdc_platform.model.stream.source_capabilities import SourceCapabilities, SourceSettings
from cdc_platform.sources.debezium.settings.connector import (
    PROPERTIES,
    ConnectorModes,
    NullPolicy,
    SnapshotPolicy,
    Strategy,
    modes_of,
    properties_of,
)
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.debezium.settings.kafka_settings import KafkaInput
from cdc_platform.sources.debezium.wire.lines import MAX_UNPACKED_BYTES
from cdc_platform.sources.locations import check_location
from cdc_platform.sources.table_templates import check_table_name

DEDUP_WINDOW_MAX_S: Final = 31 * DAY_S


@dataclass(frozen=True)
class FilesInput:
    """Files of JSON lines, optionally gzip, one message per line, in the order of arrival."""

    path: Annotated[
        str,
        Described(
            "Folder or object store prefix with the files, which are read in the order of their names. "
            "A relative folder is relative to the folder of this file.",
            is_path=True,
        ),
    ]
    max_unpacked_bytes: Annotated[
        int,
        Described(
            "Maximum bytes of text of a gzip file, because the platform holds a file in memory; the "
            "check `files_readable` names a larger one as unread."
        ),
    ] = MAX_UNPACKED_BYTES

    def __post_init__(self) -> None:
        check_filled(self, "input.files.")
        check_location("input.files.path", self.path)
        check_range(self, ("max_unpacked_bytes",), above=0, place="input.files.")


Input = FilesInput | KafkaInput | EngineInput
INPUTS: Final[Mapping[str, type[Input]]] = {"files": FilesInput, "kafka": KafkaInput, "engine": EngineInput}
PerColumn = Mapping[str, Mapping[str, str]]
"""Values by table and column."""


@dataclass(frozen=True)
class DebeziumSettings(SourceSettings):
    """Origin of events, and facts that the events do not contain.

    Tables have their names in the lake, from `table_name`, after `partitions` has mapped a table's partitions
    to it.
    """

    input: Annotated[Input, Described("Where the events are: exactly one of the three.", choices=INPUTS)]
    connector: Annotated[
        ConnectorModes,
        Described("Settings of the connector that differ from its defaults."),
    ] = field(default_factory=ConnectorModes)
    columns: Annotated[
        PerColumn,
        Described("PostgreSQL types per table and column, if events have no schema block."),
    ] = field(default_factory=dict)
    keys: Annotated[
        Mapping[str, tuple[str, ...]],
        Described(
            "Key columns per table, if events are stored without their keys; [] for a table without a key."
        ),
    ] = field(default_factory=dict)
    ignored_columns: Annotated[
        Mapping[str, tuple[str, ...]],
        Described("Columns per table that stay out of the lake, such as generated ones."),
    ] = field(default_factory=dict)
    column_placeholders: Annotated[
        PerColumn,
        Described(
            "Form of an unavailable value if the connector masks the column: the text itself, "
            "`truncate:LENGTH`, or `hash:ALGORITHM:SALT[:LENGTH]`."
        ),
    ] = field(default_factory=dict)
    null_policies: Annotated[
        Mapping[str, NullPolicy],
        Described(
            "What null means in updates of columns whose type has no marker for an unavailable value: "
            "`unavailable`, `null` or `error`; by TABLE.COLUMN, by type such as `numeric` or `smallint[]`, "
            "or `*` for all others, which is `error` otherwise."
        ),
    ] = field(default_factory=dict)
    full_identity: Annotated[
        tuple[str, ...], Described("Tables with replica identity FULL, for events that do not show it.")
    ] = ()
    strategy: Annotated[
        Strategy,
        Described(
            "What happens to values that the source did not send: the stored value stays (`omit`), "
            "the log marks it and the table keeps its value (`veto`), or the log itself is completed "
            "(`enrich`)."
        ),
    ] = Strategy.OMIT
    has_transaction_topic: Annotated[
        bool,
        Described(
            "Whether the connector provides transaction metadata, so that transactions stay whole; "
            "the engine always does."
        ),
    ] = False
    snapshots: Annotated[
        SnapshotPolicy,
        Described(
            "Effect of a repeated snapshot on rows that it lacks: they stay and are reported "
            "(`merge`), or are removed (`replace`)."
        ),
    ] = SnapshotPolicy.MERGE
    table_name: Annotated[
        str,
        Described(
            "Name of a table in the lake, made of {database}, {schema} and {table}; must contain {table}."
        ),
    ] = "{schema}.{table}"
    partitions: Annotated[
        Mapping[str, str],
        Described("Regular expressions of SCHEMA.TABLE, each with the SCHEMA.TABLE that it belongs to."),
    ] = field(default_factory=dict)
    signal_table: Annotated[
        str | None, Described("SCHEMA.TABLE of the connector's signals, which never becomes a table.")
    ] = None
    dedup_window_s: Annotated[
        float, Described("Seconds for which an event may be sent again; at most 31 days.")
    ] = DAY_S
    captures: bool = True
    """Whether to start a configured engine; a process that only reads the lake needs none."""

    def __post_init__(self) -> None:
        check_members(self)
        for name in self.null_policies:
            _check_policy_name(name)
        for setting in ("columns", "keys", "ignored_columns", "column_placeholders", "full_identity"):
            for name in getattr(self, setting):
                _check_table(setting, name)
        check_table_name(self.table_name)
        for pattern, target in self.partitions.items():
            _check_partition(pattern, target)
        if self.signal_table is not None and not all(self.signal_table.partition(".")):
            raise SettingError("signal_table", f"must look like SCHEMA.TABLE, but is: {self.signal_table!r}")
        check_range(self, ("dedup_window_s",), above=0, at_most=DEDUP_WINDOW_MAX_S)

    @property
    def capabilities(self) -> SourceCapabilities:
        """Guarantees of the connector: one order, and whole transactions if it sends their metadata."""
        return SourceCapabilities(
            delivers_events=True,
            keeps_transactions=self.has_transaction_metadata,
            comes_in_order=True,
            trusts_inserts=False,
            can_be_compared=False,
            can_be_copied=False,
            repeats_within_s=self.dedup_window_s,
            leaves_values_out=True,
            completes_log=self.strategy == Strategy.ENRICH,
            values_fit=True,
        )

    @property
    def has_transaction_metadata(self) -> bool:
        """Whether messages show which transactions are complete; those of the embedded engine always do."""
        return self.has_transaction_topic or isinstance(self.input, EngineInput)

    @property
    def folder(self) -> str:
        """Location of the event files."""
        return self.input.spool if isinstance(self.input, EngineInput) else getattr(self.input, "path", "")

    def reads(self, location: str) -> bool:
        """Return whether files in a folder would be read as events; files of a spool have own names."""
        return not isinstance(self.input, EngineInput) and super().reads(location)

    @property
    def max_unpacked_bytes(self) -> int:
        """Maximum bytes of text in a gzip file."""
        return self.input.max_unpacked_bytes if isinstance(self.input, FilesInput) else MAX_UNPACKED_BYTES

    @property
    def title(self) -> str:
        """Name of the source in messages."""
        return f"Debezium events of {_title(self.input)}"

    def with_deadline(self, deadline_s: float) -> Self:
        """Return the same settings without an engine, and with a deadline for brokers."""
        own_input = self.input
        if isinstance(own_input, KafkaInput):
            own_input = replace(own_input, timeout_s=min(deadline_s, own_input.timeout_s))
        return replace(self, captures=False, input=own_input)

    def without_password(self) -> "DebeziumSettings":
        """Return the settings that tasks need."""
        if isinstance(self.input, EngineInput):
            return replace(self, input=replace(self.input, password=""))
        if isinstance(self.input, KafkaInput):
            return replace(self, input=replace(self.input, client={}))
        return self

    @classmethod
    def from_fields(cls, entries: Mapping[str, Any], folder: Path | None = None) -> Self:
        """Return the settings from values of YAML or JSON, as `read_settings` does.

        An engine and the decoder of its events use the same modes, from its properties or from `connector`.

        Raises:
            SettingError: a name is unknown or missing, a value is invalid, or a mode is set twice.
        """
        settings = read_settings(cls, entries, folder)
        if not isinstance(settings.input, EngineInput):
            return settings
        modes = _merge_modes(entries.get("connector") or {}, settings.input.properties)
        properties = {**properties_of(modes), **settings.input.properties}
        return replace(settings, connector=modes, input=replace(settings.input, properties=properties))


def _title(event_input: Input) -> str:
    if isinstance(event_input, KafkaInput):
        return f"the topics {event_input.topics_pattern} of {event_input.bootstrap_servers}"
    if isinstance(event_input, EngineInput):
        return f"the database {event_input.database} on {event_input.host}:{event_input.port}"
    return f"the files in {event_input.path}"


def _merge_modes(own: Mapping[str, Any], properties: Mapping[str, str]) -> ConnectorModes:
    """Return the modes of an engine, from its properties or from `connector`.

    Raises:
        SettingError: both set a mode, and they differ.
    """
    modes = modes_of(properties)
    for name in modes.keys() & own.keys():
        if modes[name] != own[name]:
            raise SettingError(
                f"connector.{name}",
                f"is {own[name]!r}, and `{PROPERTIES[name]}` of the engine's properties is {modes[name]!r}: "
                "remove one of them",
            )
    return read_settings(ConnectorModes, {**own, **modes}, place="connector.")


def _check_policy_name(name: str) -> None:
    if "." not in name and "(" in name:
        raise SettingError(f"null_policies.{name}", "has sizes: name the type without them, or TABLE.COLUMN")


def _check_table(setting: str, name: str) -> None:
    # A pattern would match nothing: columns that should stay out of the lake would be in it.
    if name.endswith("*"):
        raise SettingError(f"{setting}.{name}", "must name one table, such as public.orders: not a pattern")


def _check_partition(pattern: str, target: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise SettingError("partitions", f"has an invalid regular expression: {pattern!r}") from error
    if not all(target.partition(".")):
        raise SettingError("partitions", f"must lead to SCHEMA.TABLE, but leads to: {target!r}")
