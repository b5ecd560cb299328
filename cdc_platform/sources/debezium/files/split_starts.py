"""Lines of a stream at which a split may begin: their decoding does not depend on earlier lines."""

from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.connector import SnapshotPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.wire.flattened_messages import read_content
from cdc_platform.sources.debezium.wire.lines import Line, Lines
from cdc_platform.sources.debezium.wire.message_contents import (
    DataEvent,
    EnvelopeContent,
    TransactionBegin,
    TransactionEnd,
)
from cdc_platform.sources.debezium.wire.messages import parse_line
from cdc_platform.sources.debezium.wire.plain_boundaries import may_be_boundary
from cdc_platform.sources.debezium.wire.positions import INCREMENTAL, is_snapshot


class SplitStarts:
    """Follows the lines of a stream, and finds the lines at which a split may begin.

    With transaction metadata, that is any line outside a transaction. Without it, it is a line of another
    transaction than the line before. The rows of a snapshot that replaces a table belong together.

    Args:
        settings: settings of the stream.
        state: decoder state after earlier messages.
    """

    def __init__(self, settings: DebeziumSettings, state: DecoderState) -> None:
        self._settings = settings
        self._first_snapshots = {name: snapshots.first for name, snapshots in state.snapshots.servers.items()}
        self._is_open = False
        self._newest: tuple[bytes, EnvelopeContent | None] = (b"", None)

    def follow(self, lines: Line | Lines) -> None:
        """Follow lines; only the last one that begins or ends a transaction matters."""
        if not self._settings.has_transaction_metadata:
            return
        for text in reversed(lines.texts if isinstance(lines, Lines) else (lines.text,)):
            if may_be_boundary(text):
                content = _content_of(text)
                if isinstance(content, TransactionBegin | TransactionEnd):
                    self._is_open = isinstance(content, TransactionBegin)
                    return

    def may_begin(self, text: bytes, previous: bytes | None) -> bool:
        """Return whether a split may begin with a line.

        Args:
            text: the line, which has not been followed yet.
            previous: the line before; None at the beginning of a file.
        """
        if self._settings.has_transaction_metadata and self._is_open:
            return False
        newest_text, newest = self._newest
        before = newest if previous == newest_text else _content_of(previous or b"")
        content = _content_of(text)
        self._newest = text, content
        if isinstance(before, DataEvent) and before.new_key is not None:
            # The other half of the key change follows directly, even if it cannot be read.
            return False
        if isinstance(content, DataEvent):
            return self._is_apart(content, before)
        return content is None or isinstance(content, TransactionBegin)

    def _is_apart(self, event: DataEvent, before: EnvelopeContent | None) -> bool:
        """Return whether an event does not belong to the transaction or snapshot of the line before."""
        source = event.source
        if is_snapshot(source):
            first = self._first_snapshots.get(source.server, source.lsn)
            is_kept = self._settings.snapshots is not SnapshotPolicy.REPLACE and bool(event.key)
            return source.snapshot == INCREMENTAL or source.lsn == first or is_kept
        if self._settings.has_transaction_metadata or not event.transaction_id:
            return True
        return isinstance(before, DataEvent) and (
            before.source.server,
            before.transaction_id,
        ) != (source.server, event.transaction_id)


def _content_of(text: bytes) -> EnvelopeContent | None:
    """Return the content of a line; None if it cannot be read."""
    message = parse_line(text, 0)
    if isinstance(message, FaultyEvent):
        return None
    try:
        return read_content(message)
    except MALFORMED:
        return None
