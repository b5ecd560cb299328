"""Settings of the embedded engine: its database and its spool."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import Described, check_filled, check_members, check_range
from cdc_platform.model.base.timestamps import DAY_S

MARKER_PREFIX: Final = "cdc_platform.caught_up"
"""Start of the prefix of the logical message that marks the position up to which the engine must read."""

CONNECTOR: Final = "io.debezium.connector.postgresql.PostgresConnector"
OFFSET_STORE: Final = "org.apache.kafka.connect.storage.FileOffsetBackingStore"
OWNED: Final = ("offset.", "converter.", "key.converter.", "value.converter.", "header.converter.")
"""Prefixes of properties that only the platform may set: the spool's guarantees depend on them."""
MAX_PORT: Final = 65_535
_SLOT: Final = re.compile(r"[a-z0-9_]{1,63}")
_LIST_COMMA: Final = re.compile(r"(?:[^\\,]|\\.)*,.*", re.DOTALL)
"""An entry with a comma that no backslash escapes."""
TABLE_FILTERS: Final = (
    "table.include.list",
    "table.exclude.list",
    "schema.include.list",
    "schema.exclude.list",
)
"""Properties that choose tables, as `tables` does."""
_TOPIC_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]+")
POST_PROCESSORS: Final = "post.processors"


class Snapshot(StrEnum):
    """Rows that the engine reads before it follows changes; values are Debezium's `snapshot.mode`."""

    INITIAL = "initial"
    """All rows if the spool is new."""
    WHEN_NEEDED = "when_needed"
    """All rows if the spool is new or the slot no longer has the next changes."""
    ALWAYS = "always"
    """All rows at every start."""
    NEVER = "no_data"
    """No rows: rows that have not changed since the slot was created stay unknown."""


@dataclass(frozen=True)
class EngineInput:
    """Debezium's engine, which reads PostgreSQL in its own process; needs the extra `debezium`."""

    host: Annotated[str, Described("Database server.")]
    database: Annotated[str, Described("Database whose changes are captured.")]
    user: Annotated[str, Described("Role with LOGIN and REPLICATION that may read the tables.")]
    spool: Annotated[
        str,
        Described(
            "Folder for captured events until the lake has them; one for each pipeline. Keep it: it"
            " stores the position in the database's log. Relative to the folder of this file.",
            is_path=True,
        ),
    ]
    password: Annotated[str, Described("The role's password, such as `{{ env.PGPASSWORD }}`.")] = field(
        default="", repr=False
    )
    port: Annotated[int, Described("Port of the server.")] = 5432
    tables: Annotated[
        tuple[str, ...],
        Described("Regular expressions of SCHEMA.TABLE, one in each entry; by default all tables."),
    ] = ()
    slot: Annotated[str, Described("Replication slot, created if missing; only one spool may read it.")] = (
        "cdc_platform"
    )
    publication: Annotated[str, Described("Publication, created if missing.")] = "cdc_platform"
    topic_prefix: Annotated[str, Described("First part of every topic's name.")] = "cdc"
    snapshot: Annotated[
        Snapshot,
        Described(
            "Rows to read before the changes: all if the spool is new (`initial`), also if the slot"
            " no longer has the next changes (`when_needed`), at every start (`always`), or none "
            "(`no_data`)."
        ),
    ] = Snapshot.INITIAL
    properties: Annotated[
        Mapping[str, str], Described("Further properties of the connector, as Debezium documents them.")
    ] = field(default_factory=dict)
    keep_spool_s: Annotated[
        float,
        Described("Seconds after which spool files are deleted, once the lake has all of their events."),
    ] = DAY_S
    with_schemas: bool = True
    """Whether the spool has the schema block of each key and value, which is used for decoding."""

    def __post_init__(self) -> None:
        """Reject properties that would break the spool's guarantees, or give events values of later times."""
        check_filled(self, "input.engine.")
        check_members(self, "input.engine.")
        check_range(self, ("keep_spool_s",), at_least=0, place="input.engine.")
        check_range(self, ("port",), at_least=1, at_most=MAX_PORT, place="input.engine.")
        if _SLOT.fullmatch(self.slot) is None:
            problem = (
                "must be made of at most 63 lower-case letters, digits and underscores, as PostgreSQL asks"
            )
            raise SettingError("input.engine.slot", f"{problem}, but is: {self.slot!r}")
        if _TOPIC_PREFIX.fullmatch(self.topic_prefix) is None:
            problem = "must be made of letters, digits, dots, hyphens and underscores"
            raise SettingError("input.engine.topic_prefix", f"{problem}, but is: {self.topic_prefix!r}")
        if not self.publication.strip():
            raise SettingError("input.engine.publication", "is empty; leave it out for `cdc_platform`")
        own_names = self._own_properties(Path()).keys() - {"message.prefix.include.list"} | {_SIGNAL_FILE}
        self._check_tables()
        for name in self.properties:
            if name in TABLE_FILTERS:
                raise SettingError(
                    f"input.engine.properties.{name}",
                    "cannot be set here: the engine would count the tables that it leaves out as read. "
                    "Choose tables with `tables`, such as `(?!audit[.]).*` for all outside of a schema.",
                )
            if name.startswith(OWNED) or name in own_names:
                raise SettingError(
                    f"input.engine.properties.{name}",
                    "cannot be set here: it has its own setting, or is set so that no event is lost. "
                    "Remove it.",
                )
        if POST_PROCESSORS in self.properties:
            raise SettingError(
                f"input.engine.properties.{POST_PROCESSORS}",
                "cannot be set: a reselected value may be newer than its event, and nothing marks it. "
                "Remove it; the row keeps what an event does not send.",
            )

    def _check_tables(self) -> None:
        for table in self.tables:
            if _LIST_COMMA.fullmatch(table):
                raise SettingError(
                    "input.engine.tables",
                    "must have one entry for each table: the connector splits an entry at a comma. Write "
                    f"`\\,` for the comma of a name. Entry: {table!r}",
                )
            try:
                re.compile(table)
                re.compile(f"(?:{table})")
            except re.error as error:
                raise SettingError(
                    "input.engine.tables",
                    "must be regular expressions that Java and Python read alike, such as "
                    f"`public[.]order.*`: {error}. Entry: {table!r}",
                ) from error

    def selects(self, name: str) -> bool:
        """Return whether `tables` choose a table.

        Args:
            name: the table's SCHEMA.TABLE.
        """
        return not self.tables or self._tables_pattern.fullmatch(name) is not None

    @cached_property
    def _tables_pattern(self) -> re.Pattern[str]:
        # As the connector reads them: spaces around an entry do not count, nor does the case of ASCII.
        entries = "|".join(f"(?:{table.strip()})" for table in self.tables)
        return re.compile(entries, re.IGNORECASE | re.ASCII)

    def folder(self) -> Path:
        """Return the spool's folder."""
        return Path(self.spool)

    def database_text(self) -> str:
        """Return a description of the database for messages."""
        return f"{self.host}:{self.port}, database `{self.database}`, slot `{self.slot}`"

    def identity(self) -> dict[str, str]:
        """Return the properties that must not change during the life of a spool."""
        return {"database": self.database, "slot": self.slot, "topic_prefix": self.topic_prefix}

    @property
    def joins_partitions(self) -> bool:
        """Whether changes of a partition are those of its table, under the table's name."""
        return self.properties.get(_BY_ROOT, "true").lower() == "true"

    @property
    def publication_mode(self) -> str:
        """How the connector makes the publication."""
        return self.properties.get(_PUBLICATION_MODE, _DEFAULTS[_PUBLICATION_MODE]).lower()

    @property
    def skipped_operations(self) -> frozenset[str]:
        """Operations that the connector shall not send, such as `t` for truncates."""
        operations = self.properties.get(_SKIPPED, _DEFAULTS[_SKIPPED])
        return frozenset(operation.strip() for operation in operations.split(","))

    @property
    def notification_topic(self) -> str:
        """Topic of the connector's notifications."""
        return self.properties.get(_NOTIFICATION_TOPIC, f"{self.topic_prefix}.notifications")

    def connector_properties(self, offsets: Path, signals: Path) -> dict[str, str]:
        """Return the properties of the engine and the connector.

        The engine flushes offsets with every batch, and stops at messages that cannot be written.
        """
        own = self._own_properties(offsets)
        # In addition to those of the user, the engine's own channels.
        own |= {_NOTIFICATION_TOPIC: self.notification_topic, _SIGNAL_FILE: str(signals)}
        own |= {
            name: ",".join(dict.fromkeys((*self.properties.get(name, default).split(","), channel)))
            for name, default, channel in _CHANNELS
        }
        return _DEFAULTS | dict(self.properties) | own

    def _own_properties(self, offsets: Path) -> dict[str, str]:
        own_values = {
            "name": self.slot,
            "connector.class": CONNECTOR,
            "topic.prefix": self.topic_prefix,
            "database.hostname": self.host,
            "database.port": str(self.port),
            "database.dbname": self.database,
            "database.user": self.user,
            "database.password": self.password,
            "plugin.name": "pgoutput",
            "slot.name": self.slot,
            "publication.name": self.publication,
            "snapshot.mode": self.snapshot.value,
            "provide.transaction.metadata": "true",
            "offset.storage": OFFSET_STORE,
            "offset.storage.file.filename": str(offsets),
            "offset.flush.interval.ms": "0",
            # Detect a recreated slot instead of silently skipping a gap.
            "offset.mismatch.strategy": "trust_offset",
            "offset.flush.timeout.ms": "60000",
            # The next cycle starts a new engine, which resumes from a position that loses nothing.
            "errors.max.retries": "0",
            # Blocks are several times as long as rows: the spool keeps each one once.
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "header.converter.schemas.enable": "false",
            # Each event would have four headers about the connector, of which the spool needs its run.
            "extended.headers.enabled": "false",
            # Otherwise a null in a column with a default would arrive as the default.
            "value.converter.replace.null.with.default": "false",
        }
        if self.tables:
            own_values["table.include.list"] = ",".join(self.tables)
        prefixes = self.properties.get("message.prefix.include.list")
        if prefixes:
            own_values["message.prefix.include.list"] = f"{prefixes},{MARKER_PREFIX}.*"
        return own_values


_NOTIFICATION_TOPIC: Final = "notification.sink.topic.name"
_CHANNELS: Final = (
    # property, default, channel that is always among its own
    # A snapshot has no event for an empty table; notifications show that it has covered the table.
    ("notification.enabled.channels", "sink", "sink"),
    # The engine asks for snapshots of new tables.
    ("signal.enabled.channels", "source", "file"),
)
_PUBLICATION_MODE: Final = "publication.autocreate.mode"
_SKIPPED: Final = "skipped.operations"
_SIGNAL_FILE: Final = "signal.file"
_BY_ROOT: Final = "publish.via.partition.root"
_DEFAULTS: Final = {
    # Otherwise a snapshot would read a partitioned table, whose changes then have the names of partitions.
    _BY_ROOT: "true",
    # By default truncates are not sent, so rows would stay that the source no longer has.
    _SKIPPED: "none",
    # Without heartbeats, a slot stands still while only other tables change, and the server keeps its log.
    "heartbeat.interval.ms": "10000",
    _PUBLICATION_MODE: "filtered",
    # Without PostgreSQL's types, null in an array of texts may mean NULL or a value that was not sent.
    "column.propagate.source.type": ".*",
    "max.batch.size": "8192",
    "max.queue.size": "16384",
    # Rows may have megabytes, and the engine's memory is bounded. By default, the queue's bytes are not, and
    # a snapshot fetches 10,240 rows at a time.
    "max.queue.size.in.bytes": "16777216",
    "snapshot.fetch.size": "100",
    # New tables wait for the signal that lets their rows be read: by default for up to five seconds.
    "signal.poll.interval.ms": "500",
    "slot.max.retries": "2",
    "slot.retry.delay.ms": "1000",
}
