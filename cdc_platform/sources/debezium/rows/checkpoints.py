"""Logical messages, which are markers for cuts, and the other results of decoding a message."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Final

from cdc_platform.model.stream.events import FaultyEvent, SourceEvent, SourceMessage
from cdc_platform.sources.debezium.settings.connector import BinaryMode
from cdc_platform.sources.debezium.wire.message_contents import (
    Heartbeat,
    LogicalMessage,
    Notification,
    Signal,
    Tombstone,
    TransactionBegin,
    TransactionEnd,
)


def marker_of(logical: LogicalMessage, ordering_key: str, binary: BinaryMode) -> SourceMessage:
    """Return a logical message in the form that the lake stores; users can ask for a cut at such a marker.

    Args:
        logical: the message; its content has the connector's encoding.
        ordering_key: its place in the order of changes.
        binary: the connector's encoding.
    """
    source = logical.source
    try:
        content = _DECODERS[binary](logical.content).decode()
    except ValueError:
        content = logical.content
    identity = json.dumps(
        [logical.transaction_id, source.lsn, logical.prefix, logical.content], ensure_ascii=False
    )
    return SourceMessage(
        logical.prefix,
        content,
        ordering_key,
        identity,
        logical.transaction_id if source.tx_id is not None else "",
        source.lsn,
        source.micros,
        logical.message.position,
    )


_DECODERS: Final[Mapping[BinaryMode, Callable[[str], bytes]]] = {
    BinaryMode.BYTES: base64.b64decode,
    BinaryMode.BASE64: base64.b64decode,
    BinaryMode.BASE64_URL_SAFE: base64.urlsafe_b64decode,
    BinaryMode.HEX: bytes.fromhex,
}
Control = Tombstone | TransactionBegin | TransactionEnd | SourceMessage | Heartbeat | Signal | Notification
Decoded = SourceEvent | FaultyEvent | Control
