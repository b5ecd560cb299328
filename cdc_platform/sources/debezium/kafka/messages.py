"""Messages of topics by column, and their order of arrival."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.sources.debezium.wire.messages import RawMessage

MESSAGES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("micros", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""Columns of messages; `micros` is the send time."""
_PLACE: Final = ("topic", "partition", "offset")


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[RawMessage]:
    """Yield messages in about the order of sending; each partition keeps its order, for any sender's clock.

    Args:
        batches: `MESSAGES` of any partitions, in any order.
    """
    messages: list[RawMessage] = []
    places: list[pa.RecordBatch] = []
    for batch in batches:
        messages += _messages_of(batch)
        places.append(batch.select([*_PLACE, "micros"]))
    if not messages:
        return
    table = pa.Table.from_batches(places)
    by_place = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in _PLACE])
    arrival_micros = _arrival_micros(table.take(by_place))
    by_arrival = by_place.to_numpy()[np.argsort(arrival_micros, kind="stable")]
    arrivals = [messages[number] for number in reversed(by_arrival.tolist())]
    messages.clear()
    while arrivals:
        yield arrivals.pop()


def _arrival_micros(messages: pa.Table) -> npt.NDArray[np.int64]:
    """Return the latest send time of each partition's messages up to each one."""
    micros: npt.NDArray[np.int64] = pc.fill_null(messages["micros"], 0).to_numpy().copy()
    topics = messages["topic"].combine_chunks().dictionary_encode().indices.to_numpy()
    partitions = messages["partition"].to_numpy()
    is_next = (np.diff(topics) != 0) | (np.diff(partitions) != 0)
    for part in np.split(micros, np.flatnonzero(is_next) + 1):
        np.maximum.accumulate(part, out=part)
    return micros


def _messages_of(batch: pa.RecordBatch) -> Iterator[RawMessage]:
    columns = [batch.column(name).to_pylist() for name in MESSAGES.names]
    for topic, partition, offset, micros, key, value, headers in zip(*columns, strict=True):
        yield RawMessage(topic, key, value, _headers(headers), partition, offset, micros, offset)


def _headers(headers: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    return None if headers is None else {item["key"]: item["value"] for item in headers}
