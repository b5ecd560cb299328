"""Events as rows of raw records."""

import pyarrow as pa

from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.event_batches import EventBatches


def test_every_field_of_an_event_has_its_place() -> None:
    """Each text of an event is in the field of the raw record that is called like it."""
    event = SourceEvent(
        table="the table",
        mod_type=ModType.UPDATE,
        ordering_key="the order",
        event_id="the event",
        transaction_id="the transaction",
        source_micros=1,
        column_types="the types",
        keys="the keys",
        new_values="the new values",
        old_values="the old values",
        previous_keys="the previous keys",
        unavailable_columns=("the column",),
        metadata="the metadata",
        position=2,
    )
    batches = EventBatches(3)
    batches.add(event, ReadWindow("the token", 0, 4), SourceFile("the file", "the token", 5, 6))
    (row,) = pa.Table.from_batches(batches.take()).to_pylist()
    values = {name: value for name, value in row.items() if value is not None}
    assert {
        "cycle": 3,
        "kind": "data_change",
        "partition_token": "the token",
        "record_timestamp": to_datetime(4),
        "record_sequence": "the event",
        "record_order": "the order",
        "server_transaction_id": "the transaction",
        "table_name": "the table",
        "mod_type": "UPDATE",
        "value_capture_type": "NEW_VALUES",
        "column_types": "the types",
        "mods": [{"keys": "the keys", "new_values": "the new values", "old_values": "the old values"}],
        "event": {
            "source_timestamp": to_datetime(1),
            "event_id": "the event",
            "origin": "the file",
            "position": 2,
            "previous_keys": "the previous keys",
            "unavailable_columns": ["the column"],
            "metadata": "the metadata",
            "fault": None,
            "text": None,
        },
    } == values
