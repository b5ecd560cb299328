"""Second decoding of malformed records, by a version that may know their shape."""

import json

import pyarrow as pa

from cdc_platform.sources.spanner.client.wire import MISSHAPEN
from cdc_platform.sources.spanner.stream.batches import to_batch
from cdc_platform.sources.spanner.stream.decode import data_row
from cdc_platform.sources.spanner.stream.json_records import data_row as json_data_row
from cdc_platform.sources.spanner.stream.message_records import MESSAGE_PREFIX, data_row_of_text
from cdc_platform.sources.spanner.stream.record_rows import RecordRow


def decode_again(cycle: int, token: str, sequence: str, record_text: str) -> pa.RecordBatch | None:
    """Return the raw record of a malformed record's text; None if it is still malformed.

    Args:
        cycle: the cycle that read it.
        token: the partition that delivered it.
        sequence: its `record_sequence` in the lake, which keeps its identity.
        record_text: the record as stored by `malformed_row`.
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
