"""Quarantine records of messages that cannot be used."""

import json
from collections.abc import Mapping
from typing import Any, Final

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.wire.message_contents import DELETE, DataEvent, MessageUnusable
from cdc_platform.sources.debezium.wire.messages import Message
from cdc_platform.sources.debezium.wire.positions import is_snapshot

NEW_KEYS: Final = "new_keys"
"""Member of a delete's metadata: the new key of its row."""


def fault_of(
    message: Message,
    error: Exception,
    event: DataEvent | None = None,
    ordering_key: str = "",
    table: str | None = None,
) -> FaultyEvent:
    """Return the quarantine record of a message that cannot be used, with the reason.

    Args:
        message: the message.
        error: the error of decoding it.
        event: its content, if that could be read.
        ordering_key: ordering key of the change that it describes.
        table: the table's name in the lake; the source's own name if missing.
    """
    is_unusable = isinstance(error, MessageUnusable)
    reason = str(error) if is_unusable else f"The event is not what Debezium documents: {error!r}."
    metadata: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
    }
    if event is not None and event.op is DELETE and event.new_key is not None:
        metadata[NEW_KEYS] = json.dumps(event.new_key, ensure_ascii=False, default=str)
    return FaultyEvent(
        reason,
        message.text or _as_text(message),
        message.position,
        table or (None if event is None else event.source.name),
        None,
        json.dumps(metadata, ensure_ascii=False),
        "" if event is None or _is_alone(event) else event.transaction_id,
        None if event is None or event.total_order is None else f"{event.source.name}#{event.total_order}",
        ordering_key=ordering_key,
    )


def _is_alone(event: DataEvent) -> bool:
    """Return whether no END counts the event: a snapshot sent it, or it has no transaction metadata."""
    return is_snapshot(event.source) or (event.total_order is None and not event.is_flat)


def _as_text(message: Message) -> str:
    parts: Mapping[str, Any] = {"topic": message.topic, "key": message.key, "value": message.value}
    return json.dumps(parts, ensure_ascii=False, default=str)
