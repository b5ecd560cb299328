"""Decoder of messages into events, which reads the messages of a stream in order of arrival."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.names import long_table_reason
from cdc_platform.model.rows.keyless import is_keyless
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.rows.checkpoints import Decoded, marker_of
from cdc_platform.sources.debezium.rows.identity import ADVICE as IDENTITY_ADVICE
from cdc_platform.sources.debezium.rows.identity import (
    check_key,
    learn_identity,
    names_key_alone,
    shows_index,
)
from cdc_platform.sources.debezium.rows.pairing import Identity, identity_of, key_text
from cdc_platform.sources.debezium.rows.plain_changes import PlainChanges
from cdc_platform.sources.debezium.rows.plans import Planner, TablePlan, check_masks
from cdc_platform.sources.debezium.rows.rows import RowDecoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.connector import SnapshotPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.wire.event_faults import fault_of
from cdc_platform.sources.debezium.wire.flattened_messages import ADVICE as FLAT_ADVICE
from cdc_platform.sources.debezium.wire.flattened_messages import read_content
from cdc_platform.sources.debezium.wire.message_contents import (
    CREATE,
    DELETE,
    TRUNCATE,
    DataEvent,
    EnvelopeContent,
    LogicalMessage,
    MessageUnusable,
    Notification,
    Signal,
    Tombstone,
)
from cdc_platform.sources.debezium.wire.messages import Arrival, Content, Message, parse_line, parse_message
from cdc_platform.sources.debezium.wire.positions import event_id, is_snapshot, ordering_key


class Decoder:
    """Decodes messages; its state has the needed facts of earlier ones, and later decoders continue with it.

    ``is_half`` means that an insert is half of a key change, though neither header nor state has the old key.

    Raises:
        SettingError: the settings describe a marker in an unknown way.
    """

    def __init__(
        self, settings: DebeziumSettings, state: DecoderState | None = None, *, is_half: bool = False
    ) -> None:
        check_masks(settings)
        self._is_half = is_half
        self.settings = settings
        self.state = state or DecoderState()
        self.rows = RowDecoder(settings, Planner(settings), self.state)
        self.plain = PlainChanges(self.rows)
        self._tables: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._bare: set[Identity | None] = set()
        self._partitions = [(re.compile(pattern), target) for pattern, target in settings.partitions.items()]

    def decode_lines(self, lines: Iterable[str], first_position: int = 0) -> Iterator[Decoded]:
        """Decode the lines of a file; each line is one message, and empty lines have no position."""
        texts = (line for line in lines if line.strip())
        for position, line in enumerate(texts, start=first_position):
            yield from self.decode(parse_line(line.encode(errors="surrogateescape"), position))

    def decode_beginning(self, messages: Iterable[Content]) -> Iterator[Decoded]:
        """Decode the first lines of a file or messages of a topic, without plain changes of known tables."""
        for position, content in enumerate(messages):
            if not self.plain.take(Arrival(content, "", position, 0, position)):
                yield from self.decode(parse_message(content, position))

    def decode(self, message: Message | FaultyEvent) -> list[Decoded]:
        """Decode a message: most contain one event; an update of a row without a key becomes two."""
        if isinstance(message, FaultyEvent):
            return [message]
        try:
            envelope = read_content(message)
        except MALFORMED as error:
            return [fault_of(message, error)]
        try:
            return self._decode_envelope(envelope, message)
        except MALFORMED as error:
            return [self._fault_of(message, error, envelope)]

    def _fault_of(self, message: Message, error: Exception, envelope: EnvelopeContent) -> FaultyEvent:
        if not isinstance(envelope, DataEvent):
            return fault_of(message, error)
        table = None
        with suppress(*MALFORMED):
            table = self._table(envelope)[0]
        return fault_of(message, error, envelope, self.state.order_of(envelope), table)

    def _decode_envelope(self, envelope: EnvelopeContent, message: Message) -> list[Decoded]:
        if isinstance(envelope, DataEvent):
            return self._decode_data(envelope)
        if isinstance(envelope, LogicalMessage):
            order = ordering_key(envelope, self.state.floor_of(envelope.source))
            return [marker_of(envelope, order, self.settings.connector.binary)]
        if isinstance(envelope, Tombstone):
            return [self._checked_tombstone(envelope, message)]
        if isinstance(envelope, Notification):
            self._take_note(envelope)
        return [envelope]

    def _take_note(self, notification: Notification) -> None:
        """Note the table that a snapshot found empty; a partition does not count."""
        self.plain.finish()
        self.plain.recheck_forms()
        self.state.use.has_notifications = True
        replaces = self.settings.snapshots == SnapshotPolicy.REPLACE
        if (
            notification.emptied is not None
            and replaces
            and self._target(notification.emptied) == notification.emptied
        ):
            for name, owner in self.state.owners.items():
                if owner.replace('"', "") == notification.emptied:
                    self.state.snapshots.find_empty(notification, name)

    def _decode_data(self, event: DataEvent) -> list[Decoded]:
        if event.source.name == self.settings.signal_table:
            return [self._signal(event)]
        self.plain.recheck_forms()
        self.state.use.see(event.source)
        if event.is_flat:
            is_delete = event.op is DELETE and event.key is not None
            self.state.note_flat_event(event.message, key_text(event.key or {}) if is_delete else "")
        else:
            self.state.note_envelope(event.message)
        table, label = self._table(event)
        savepoint = self.state.savepoint(event.source.server, table)
        try:
            row = self._decode_row(event, table, label)
        except MALFORMED:
            self.state.roll_back(savepoint)
            raise
        self.plain.learn(event, table)
        return row

    def _decode_row(self, event: DataEvent, table: str, label: str) -> list[Decoded]:
        if is_snapshot(event.source) and event.source.lsn is not None:
            floor = self.state.floors.get(event.source.server, 0)
            self.state.floors[event.source.server] = max(floor, event.source.lsn)
        self._check_owner(table, label, event.source.database)
        event = self._with_key(event, table)
        if self._is_half and event.op is CREATE:
            event = replace(event, old_key=event.key)
        self._check_identity(event, table)
        self.state.remember(event)
        changes = self.rows.decode(event, table, self._is_full(event, table))
        check_key(self.state.keys, event, table)
        is_replaced = self.settings.snapshots == SnapshotPolicy.REPLACE or any(
            is_keyless(change.keys) for change in changes
        )
        is_buffered = self.settings.has_transaction_metadata
        watch = self.state.snapshots
        return [*watch.take(event.source, changes, replaces=is_replaced, is_buffered=is_buffered)]

    def _signal(self, event: DataEvent) -> Signal:
        if is_snapshot(event.source) or not event.transaction_id:
            return Signal(event.message.position)
        order = ordering_key(event, self.state.floor_of(event.source))
        identity = event_id(event, event.source.name)
        return Signal(event.message.position, event.transaction_id, order, identity)

    def _table(self, event: DataEvent) -> tuple[str, str]:
        """Return the table's name in the lake, which a partition shares with its table, and its own name.

        Raises:
            MessageUnusable: only a partition was truncated.
        """
        source = event.source
        if event.op is TRUNCATE and (target := self._target(source.name)) != source.name:
            raise MessageUnusable(
                f"The partition `{source.name}` of `{target}` was truncated, and nothing shows which rows it "
                "had. Take a new snapshot of the table; to keep partitions separate, remove the pattern from "
                "`partitions`."
            )
        parts = source.database, source.schema, source.table
        names = self._tables.get(parts)
        if names is None:
            target = self._target(source.name)
            schema, table = target.split(".", 1) if target != source.name else (source.schema, source.table)
            names = self._full_name(source.database, schema, table), _quote(schema, table)
            self._tables[parts] = names
        return names

    def _check_owner(self, name: str, label: str, database: str) -> None:
        """Note the database's table of a table of the lake, and the database, which not all events state.

        Raises:
            MessageUnusable: the lake's table belongs to another table, of this or another database.
        """
        owner = self.state.owners.setdefault(name, label)
        first_database = self.state.databases.setdefault(name, database) if database else ""
        if database != first_database:
            raise MessageUnusable(
                f"The events of `{owner}` come from the database `{first_database}`, and this one from "
                f"`{database}`. Read the events of one connector in a pipeline, or give the tables of "
                "databases different names by `table_name`, such as {database}.{table}. If the database has "
                "another name now, begin a new pipeline."
            )
        if owner != label:
            bare = label.replace('"', "")
            raise MessageUnusable(
                f"The tables `{owner}` and `{label}` would both be `{name}` in the lake. "
                "Give them different names by `table_name`, such as {schema}__{table}. If the second is "
                f"the first by another name, map it in `partitions`: {bare}: {owner}."
            )

    def _with_key(self, event: DataEvent, table: str) -> DataEvent:
        """Return an event with the key of its row if it was stored without a key."""
        names = self.settings.keys.get(table)
        if event.key is not None or not names or event.op is TRUNCATE:
            return event
        row = (event.before if event.op is DELETE else event.after) or {}
        return replace(event, key={name: row.get(name) for name in names})

    def _target(self, name: str) -> str:
        return next((target for pattern, target in self._partitions if pattern.fullmatch(name)), name)

    def _full_name(self, database: str, schema: str, table: str) -> str:
        if not table:
            raise MessageUnusable("The event does not name its table: `source.table` is empty.")
        name = self.settings.table_name.format(database=database, schema=schema, table=table)
        if (reason := long_table_reason(name)) is not None:
            raise MessageUnusable(reason)
        return name

    def _is_full(self, event: DataEvent, table: str) -> bool:
        """Return whether an event is under FULL, by the settings, earlier events, its half or its images."""
        if table in self.settings.full_identity:
            return True
        if event.source.name not in self.state.full:
            return False
        is_bare = event.op is CREATE and identity_of(event) in self._bare
        return not is_bare and not shows_index(event, self.rows.planner.plan(event, table).columns)

    def _check_identity(self, event: DataEvent, table: str) -> None:
        """Note the replica identity of the event's table.

        Raises:
            MessageUnusable: the identity is unusable, or the type of a column is unknown.
        """
        name = event.source.name
        if table in self.settings.full_identity:
            self.state.unusable.discard(name)
            return

        def plan() -> TablePlan:
            return self.rows.planner.plan(event, table)

        shown_full = learn_identity(self.state, event, plan)
        if shown_full is not None:
            if not self.state.use.knows_identity(name):
                # What they depend on is noted when they are decoded.
                self.plain.finish()
            self.state.use.show(name, is_full=shown_full)
        is_full = name in self.state.full
        if is_full and event.op is DELETE and names_key_alone(event, plan().columns):
            self._bare.add(identity_of(event))
        is_unusable = name in self.state.unusable and not is_full and event.op is not TRUNCATE
        if is_unusable and not self._names_full(event):
            raise MessageUnusable(
                f"{IDENTITY_ADVICE}. If the table has the key and REPLICA IDENTITY FULL, name it in "
                "`full_identity`."
            )

    def _names_full(self, event: DataEvent) -> bool:
        source = event.source
        return self._full_name(source.database, source.schema, source.table) in self.settings.full_identity

    def _checked_tombstone(self, tombstone: Tombstone, message: Message) -> Decoded:
        """Return the tombstone, or a fault if a flattened stream sends nothing else for a delete."""
        deleted_key = self.state.deleted_key_before(message)
        if deleted_key is None or deleted_key == key_text(tombstone.key or {}):
            return tombstone
        return FaultyEvent(
            "A row was deleted, and the flattened stream does not say when: it has sent a tombstone alone. "
            f"{FLAT_ADVICE}.",
            message.text,
            message.position,
        )


def _quote(schema: str, table: str) -> str:
    """Return a name that is unique even if the parts of names contain dots."""
    return f'"{schema}".{table}' if "." in schema else f"{schema}.{table}"
