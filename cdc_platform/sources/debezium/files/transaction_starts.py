"""Messages at which a stream may be cut into splits: those that begin a transaction."""

from typing import Final

from cdc_platform.model.base.malformed import MALFORMED
from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.wire.envelope import DataEvent, TransactionBegin, read_envelope
from cdc_platform.sources.debezium.wire.flattened import read_flattened
from cdc_platform.sources.debezium.wire.messages import parse_line
from cdc_platform.sources.debezium.wire.positions import INCREMENTAL, is_snapshot

_FIRST_SNAPSHOT: Final = "first snapshot"


class TransactionStarts:
    """Looks at consecutive lines, and finds those that begin a transaction.

    With transaction metadata, that is what its BEGIN does; without it, a change of another transaction than
    the change before. Rows of the snapshot that a stream begins with belong to none; those of a later one
    belong together, since it replaces tables.

    Args:
        settings: of the stream.
        state: what earlier messages tell.
    """

    def __init__(self, settings: DebeziumSettings, state: DecoderState) -> None:
        self._tells_transactions = settings.tells_transactions
        self._known_servers = state.snapshots.seen.keys()
        self._previous: tuple[str, str] | None = None

    def forget(self) -> None:
        """Forget the lines that were looked at: the next one does not follow them."""
        self._previous = None

    def begins(self, text: str) -> bool:
        """Return whether a line begins a transaction, as far as the lines before it show."""
        message = parse_line(text, 0)
        if isinstance(message, FaultyEvent):
            return False
        try:
            content = read_envelope(message) or read_flattened(message)
        except MALFORMED:
            return False
        if isinstance(content, TransactionBegin):
            return True
        return isinstance(content, DataEvent) and self._begins(content)

    def _begins(self, event: DataEvent) -> bool:
        previous, source = self._previous, event.source
        if is_snapshot(source):
            is_first = source.server not in self._known_servers and source.snapshot != INCREMENTAL
            self._previous = (source.server, _FIRST_SNAPSHOT if is_first else "")
            return is_first and self._previous == previous
        self._previous = (source.server, event.transaction_id)
        if self._tells_transactions or previous is None or not event.transaction_id:
            return False
        return previous != self._previous and previous[1] not in ("", _FIRST_SNAPSHOT)
