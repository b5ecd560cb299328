"""Malformed records that are decoded again, by a version that may know their shape."""

import json

import pyarrow as pa

from cdc_platform.sources.spanner.client.wire import MISSHAPEN
from cdc_platform.sources.spanner.stream.batches import to_batch
from cdc_platform.sources.spanner.stream.decode import data_row
from cdc_platform.sources.spanner.stream.json_records import data_row as json_data_row
from cdc_platform.sources.spanner.stream.message_records import MESSAGE_PREFIX, data_row_of_text
from cdc_platform.sources.spanner.stream.record_rows import RecordRow


def decode_again(cycle: int, token: str, sequence: str, record_text: str) -> pa.RecordBatch | None:
    """Return the raw record that the text of a malformed one gives; None if it still gives none.

    Args:
        cycle: the cycle that read it.
        token: the partition that it came by.
        sequence: its `record_sequence` in the lake, by which it stays the same record.
        record_text: the record, as `malformed_row` has kept it.
    """
    try:
        row = _decoded(record_text)
    except MISSHAPEN:
        return None
    return to_batch(cycle, token, [tuple(row._replace(record_sequence=sequence))])


def _decoded(record_text: str) -> RecordRow:
    if record_text.startswith("{"):
        return json_data_row(json.loads(record_text))
    if record_text.startswith(MESSAGE_PREFIX):
        return data_row_of_text(record_text)
    return data_row(record_text.encode("latin-1"))
