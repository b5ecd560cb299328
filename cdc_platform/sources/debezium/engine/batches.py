"""Batches of the engine, written to its spool in whole transactions."""

import json
import os
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from cdc_platform.model.base.stored_names import NEW_TABLES_RUN
from cdc_platform.sources.debezium.engine.new_tables import NewTables
from cdc_platform.sources.debezium.engine.spool import SpoolWriter
from cdc_platform.sources.debezium.engine.spool_files import reported_as_unusable
from cdc_platform.sources.debezium.settings.engine_settings import MARKER_PREFIX, EngineInput
from cdc_platform.sources.debezium.wire.plain_lines import RUN_ID
from cdc_platform.sources.debezium.wire.stored_blocks import store_block

CAUGHT_UP: Final = b"\n"
_MAX_NAMES: Final = 1_000
"""Schemas whose names are kept: a transform may join tables in a topic, or make a schema for each event."""


@dataclass
class Run:
    """Result of a run of the engine; filled by the engine's threads."""

    marker: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_polling: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None
    stopping: bool = False
    report_to: int | None = None
    """The file descriptor to report to, until everything before the marker is in the spool."""

    def reach_marker(self) -> None:
        """Report, once, that everything before the marker is in the spool."""
        if self.report_to is not None:
            # A parent process that has ended does not read it.
            with suppress(BrokenPipeError):
                os.write(self.report_to, CAUGHT_UP)
            self.report_to = None

    def fail(self, failure: BaseException) -> None:
        """Store the first failure, and end the run."""
        if self.failure is None and not self.stopping:
            self.failure = failure
        self.ended.set()


class SchemaBlocks:
    """The schema blocks of keys and values, which the spool stores once each.

    Args:
        spool: the spool's folder.
    """

    def __init__(self, spool: Path) -> None:
        import jpype

        self._spool = spool
        self._converter = jpype.JClass("org.apache.kafka.connect.json.JsonConverter")()
        self._converter.configure(jpype.JClass("java.util.HashMap")(), False)
        self._newest: dict[tuple[str, str], tuple[Any, str]] = {}
        self._name_of = lru_cache(_MAX_NAMES)(self._store)

    def wrap(self, topic: str, part: str, text: str, schema: Any) -> str:
        """Return the JSON of a key or value of a topic with the name of its block."""
        if schema is None:
            return text
        newest, name = self._newest.get((topic, part), (None, ""))
        # Equal schemas are most often the same Java object, which is faster to compare than to hash.
        if newest is None or not newest.equals(schema):
            name = self._name_of(schema)
            self._newest[topic, part] = schema, name
        return f'{{"schema":"{name}","payload":{text}}}'

    def _store(self, schema: Any) -> str:
        with reported_as_unusable(self._spool):
            return store_block(self._spool, str(self._converter.asJsonSchema(schema)))


class BatchWriter:
    """Writes the engine's batches to the spool and then acknowledges them, in whole transactions.

    Events that were written but not acknowledged come again after a restart; readers recognise duplicates by
    their event id. The engine never has to resume within a transaction, where it loses rows that share a
    position, such as those of a COPY (Debezium up to 3.6, dbz#1554). Heartbeats are not written.
    """

    def __init__(self, writer: SpoolWriter, settings: EngineInput, run: Run, new_tables: NewTables) -> None:
        self._writer, self._run, self._new_tables = writer, run, new_tables
        self._blocks = SchemaBlocks(settings.folder()) if settings.with_schemas else None
        self._notifications = settings.notification_topic
        self._heartbeats = f"__debezium-heartbeat.{settings.topic_prefix}"
        self._messages = f"{settings.topic_prefix}.message"
        self._transactions = f"{settings.topic_prefix}.transaction"
        self._run_id = uuid.uuid4().hex
        self._is_open = self._has_marker = False

    def write(self, records: Sequence[Any], committer: Any) -> None:
        """Write a batch and acknowledge its complete transactions.

        Raises:
            CaptureStopped: the rows of new tables cannot be read; the batch is written.
        """
        events, last_whole, is_at_marker = [], None, False
        for record in records:
            topic = str(record.destination())
            if topic != self._heartbeats:
                events.append(self._event_text(topic, record))
            self._follow(topic, record)
            if not self._is_open:
                last_whole = record
                is_at_marker |= self._has_marker
        if events:
            self._writer.write(events, time.time_ns() // 1_000_000)
        if last_whole is not None:
            # Acknowledging a record covers all earlier ones, and calls into Java are expensive.
            committer.markProcessed(last_whole)
        committer.markBatchFinished()
        self._writer.keep_offsets()
        self._new_tables.finish()
        if is_at_marker and not self._new_tables.names:
            self._run.reach_marker()

    def _event_text(self, topic: str, record: Any) -> str:
        """Return the members of an event's JSON object; key, value and headers stay as the engine wrote them.

        A header with the run of the connector is added.
        """
        members = ""
        headers = record.headers()
        # Calls into Java are expensive, and few events have headers.
        if not headers.isEmpty():
            members = "".join(
                f"{json.dumps(str(header.getKey()))}:{_json(header.getValue())}," for header in headers
            )
        # Of two headers of one name the last one counts: a transform may add this one, too.
        members += f'"{RUN_ID}":"{NEW_TABLES_RUN if self._new_tables.are_read else self._run_id}"'
        key, value = _json(record.key()), _json(record.value())
        if self._blocks is not None and topic != self._transactions:
            sent = record.sourceRecord()
            key = self._blocks.wrap(topic, "key", key, sent.keySchema())
            value = self._blocks.wrap(topic, "value", value, sent.valueSchema())
        return f'"topic":{json.dumps(topic)},"key":{key},"value":{value},"headers":{{{members}}}'

    def _follow(self, topic: str, record: Any) -> None:
        """Track whether a transaction is open and whether our marker has arrived."""
        if topic == self._transactions:
            self._is_open = _has_begun(str(record.value()))
        elif topic == self._messages and self._run.marker in str(record.key()):
            self._has_marker = True
        elif topic == self._notifications:
            self._new_tables.follow(str(record.value()))


def _has_begun(transaction: str) -> bool:
    return bool(json.loads(transaction)["status"] == "BEGIN")


def is_progress(event: str, topic_prefix: str) -> bool:
    """Return whether an event of the spool is more than a marker of the engine and its transaction.

    The engine writes a marker every few seconds while it waits, so markers show only that the log is read.
    """
    fields = json.loads(event)
    if fields["topic"] == f"{topic_prefix}.message":
        return MARKER_PREFIX not in json.dumps(fields["key"])
    return bool(fields["topic"] != f"{topic_prefix}.transaction")


def _json(text: Any) -> str:
    return "null" if text is None else str(text)
