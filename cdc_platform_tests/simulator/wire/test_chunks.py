"""Large values in chunks, and how both clients join them."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.chunks import split_value
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings
from cdc_platform.simulator.wire.wire import list_value, plain_value, string_value, varint
from cdc_platform.sources.spanner.client import wire
from cdc_platform.sources.spanner.client.chunks import merge_chunks
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import Query, change_stream_query
from cdc_platform.sources.spanner.stream.decode import decode_change_record
from cdc_platform_tests.sources.spanner.servers import (
    SIMULATOR,
    Server,
    children_of,
    connected,
    data_of,
    spanner_settings,
)

TWENTY_MB: Final = 20_000_000
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False), st.text(max_size=30)),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=30,
)


@given(st.one_of(st.text(max_size=60), st.lists(PLAIN, max_size=8)), st.integers(1, 40))
def test_chunks_merge_to_the_value(plain: Any, limit_bytes: int) -> None:
    """The reader's rules join chunks of any size."""
    value = plain_value(plain)
    first, *rest = split_value(value, limit_bytes)
    for chunk in rest:
        first = merge_chunks(first, chunk)

    assert merge_chunks(value, plain_value("" if isinstance(plain, str) else [])) == first


@given(PLAIN)
def test_values_are_protobuf(plain: Any) -> None:
    """The hand-written encoder writes what protobuf writes."""
    from google.protobuf.json_format import (  # type: ignore[import-untyped] # ships no types
        ParseDict,
    )
    from google.protobuf.struct_pb2 import Value  # type: ignore[import-untyped] # ships no types

    assert ParseDict(plain, Value()) == Value.FromString(plain_value(plain))


@given(st.integers(0, 2**63))
def test_numbers_of_any_length(number: int) -> None:
    """Lengths are read back by the reader of the wire format."""
    if number < 2**20:
        assert wire.text(string_value("x" * number)) == "x" * number
    assert all(byte >= 0x80 for byte in varint(number)[:-1])
    assert number == sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint(number)))
    assert wire.items(list_value([string_value("a"), string_value("b")])) == [
        string_value("a"),
        string_value("b"),
    ]


@pytest.mark.integration
def test_both_clients_read_twenty_megabytes() -> None:
    """A row and a record of 20 MB arrive whole, in our client and in the stock one."""
    settings = SimulatorSettings(
        seed=3,
        rate=1,
        history_s=25,
        document_bytes=TWENTY_MB,
        accounts=20,
        partitions=1,
        partition_life_s=600,
        # The stock client copies all it has at every chunk.
        chunk_bytes=4_000_000,
    )
    with Simulator(settings) as simulator, connected(simulator) as database:
        server = Server(SIMULATOR, settings.dialect, simulator.host, database, simulator.origin_micros)
        (token,) = children_of(list(server.read(to_datetime(server.created_micros))))
        start, end = server.created_micros, simulator.database.now_micros()
        stock = [
            str(mod["new_values"]["body"])
            for record in data_of(list(server.read(to_datetime(start), to_datetime(end), token)))
            for mod in record["mods"]
            if record["table_name"] == "documents"
        ]
        client = SpannerClient(spanner_settings(simulator))
        query = change_stream_query(settings.change_stream, token, start, end, 1000)
        ours = [
            json.loads(new or "")["body"]
            for row in client.rows(query)
            for record in decode_change_record(row[0])
            if record.table_name == "documents"
            for new in (record.mods or ())[1::3]
        ]
        rows = Query("SELECT body FROM documents ORDER BY document_id", read_micros=end)
        bodies = [wire.required_text(row[0]) for row in client.fetch(rows)]
        client.close()

    assert stock == ours
    assert bodies
    assert set(bodies) <= set(ours)
    assert all(len(body.encode()) >= TWENTY_MB for body in ours)
