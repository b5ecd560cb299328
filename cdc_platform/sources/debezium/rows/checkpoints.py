"""Logical messages, which are markers for cuts, and the other results of decoding a message."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent, SourceMessage
from cdc_platform.sources.debezium.settings.connector import BinaryMode
from cdc_platform.sources.debezium.wire.message_contents import (
    Heartbeat,
    Notification,
    Signal,
    Tombstone,
    TransactionBegin,
    TransactionEnd,
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A logical message; users can ask for a cut at such a marker.

    ``content`` has the connector's encoding, which is base64 unless its binary mode differs.
    """

    prefix: str
    content: str
    ordering_key: str
    transaction_id: str
    is_transactional: bool
    lsn: int | None
    micros: int | None
    position: int
    binary: BinaryMode = BinaryMode.BYTES

    def as_message(self) -> SourceMessage:
        """Return the message in the form that the lake stores."""
        try:
            content = _DECODERS[self.binary](self.content).decode()
        except ValueError:
            content = self.content
        identity = json.dumps([self.transaction_id, self.lsn, self.prefix, self.content], ensure_ascii=False)
        return SourceMessage(
            self.prefix,
            content,
            self.ordering_key,
            identity,
            self.transaction_id if self.is_transactional else "",
            self.lsn,
            self.micros,
            self.position,
        )


_DECODERS: Final[Mapping[BinaryMode, Callable[[str], bytes]]] = {
    BinaryMode.BYTES: base64.b64decode,
    BinaryMode.BASE64: base64.b64decode,
    BinaryMode.BASE64_URL_SAFE: base64.urlsafe_b64decode,
    BinaryMode.HEX: bytes.fromhex,
}
Control = Tombstone | TransactionBegin | TransactionEnd | Checkpoint | Heartbeat | Signal | Notification
Decoded = SourceEvent | FaultyEvent | Control
