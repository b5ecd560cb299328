"""Events that benchmarks write, as a connector sends them."""

import json
from itertools import count

from benchmarks.inputs.events import change_message, with_transactions
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.wire.message_contents import TransactionBegin, TransactionEnd
from cdc_platform_tests.sources.debezium.written_events import settings_with


def test_changes_are_in_transactions_behind_the_snapshot() -> None:
    """The decoder counts the changes that each end announces; the last transaction may be smaller."""
    places = zip("rruuuuu", count(100, 10), strict=False)
    messages = [change_message(op, "items", {"id": 1}, {"id": 1}, lsn, 5) for op, lsn in places]
    sent = with_transactions(messages, "bench.transaction", "public.items", 3)
    lines = [json.dumps(message) for message in sent]
    decoded = list(
        Decoder(
            settings_with(columns={"public.items": {"id": "bigint"}}, has_transaction_topic=True)
        ).decode_lines(lines)
    )
    changes = [event.transaction_id for event in decoded if isinstance(event, SourceEvent)]
    ends = {event.transaction_id: event.event_count for event in decoded if isinstance(event, TransactionEnd)}
    begun = [event.transaction_id for event in decoded if isinstance(event, TransactionBegin)]
    assert {begun[0]: 3, begun[1]: 2} == ends
    assert [*[begun[0]] * 3, *[begun[1]] * 2] == changes[-5:]
    assert len(decoded) == len(messages) + 4
