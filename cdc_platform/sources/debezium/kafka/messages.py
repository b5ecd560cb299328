"""Messages of topics, and their assignment to splits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.sources.workers import prepare_worker

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
"""Columns of each message, in the order of arrival."""


ARRIVED: Final = "arrived"
"""Latest send time of a partition's messages up to this one."""
ROUTE: Final = "route"
"""Text shared by messages that must be in one split."""
ROUTED: Final = pa.schema([*MESSAGES, (ARRIVED, pa.int64()), (ROUTE, pa.string())])
_TRANSACTION: Final = (
    r'"source":\{[^{}]*"txId":(?P<change>[0-9]+)'
    r'|"__(?:source_)?txId":(?P<flat>[0-9]+)'
    r'|(?:^\{|"payload":\{)"status":"(?:BEGIN|END)","id":"(?P<boundary>[0-9]+):'
)
_SNAPSHOT_ROW: Final = r'"snapshot":"(?:true|first|last|first_in_data_collection|last_in_data_collection)"'
_TOGETHER: Final = 5_000
"""Offsets of a partition whose snapshot rows go to the same split."""


@dataclass(frozen=True)
class MessageRouter:
    """Assigns batches of a partition's messages, which are in order, to splits.

    The messages of a transaction belong together, as far as their texts show; a split with only a part of a
    transaction is decoded again together with the others.

    Args:
        splits: maximum number of splits.
        spreads_snapshots: whether the rows of a snapshot may be in several splits.
    """

    splits: int = 1
    spreads_snapshots: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the messages with their routes, and with the latest send time so far."""
        prepare_worker()
        newest: dict[tuple[str, int], int] = {}
        for batch in batches:
            if batch.num_rows:
                place = (batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
                arrived = pc.cumulative_max(batch.column("micros"), start=newest.get(place))
                newest[place] = arrived[-1].as_py()
                columns = [*batch.columns, arrived, self._routes(batch)]
                yield pa.RecordBatch.from_arrays(columns, schema=ROUTED)

    def _routes(self, batch: pa.RecordBatch) -> pa.Array:
        values = pc.cast(batch.column("value"), pa.large_binary())
        matches = pc.extract_regex(values, _TRANSACTION)
        groups = [
            pc.cast(pc.fill_null(pc.struct_field(matches, name), b""), pa.string())
            for name in ("change", "flat", "boundary")
        ]
        routes = pc.binary_join_element_wise(*groups, "")
        if not self.spreads_snapshots:
            return routes
        is_row = pc.fill_null(pc.match_substring_regex(values, _SNAPSHOT_ROW), False)
        numbers = pc.cast(pc.divide(batch.column("offset"), _TOGETHER), pa.string())
        partitions = pc.cast(batch.column("partition"), pa.string())
        of_rows = pc.binary_join_element_wise(batch.column("topic"), partitions, numbers, "/")
        return pc.if_else(is_row, of_rows, routes)
