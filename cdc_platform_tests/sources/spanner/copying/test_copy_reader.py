"""Reading one chunk of a copy: every row once, for every failure."""

from base64 import b64encode
from dataclasses import replace

import pytest
from google.cloud.spanner_v1.types import KeySet

from cdc_platform.errors import CopyExpired, KeyUnfit, RecordUnreadable, SourceError, SourceUnreachable
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.copying import copy_reader
from cdc_platform.sources.spanner.copying.copy_chunks import Chunk, PartitionToken
from cdc_platform.sources.spanner.copying.copy_reader import read_chunk
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.sources.spanner.fake_server import Answer, FakeServer, fake_server

grpc = pytest.importorskip("grpc")

TABLE = table("t", {"id": "INT64"}, {"v": "STRING(MAX)"})


def with_nanoseconds(schema: TableSchema) -> TableSchema:
    """Return the table with timestamps that keep all of their digits."""
    columns = (replace(column, type=column.type.with_nanoseconds()) for column in schema.columns)
    return replace(schema, columns=tuple(columns))


RANGE = Chunk(1_000_000, ("0",), ("9",))
TOKEN = Chunk(1_000_000, partition=PartitionToken("s/other", b"tx", b"part"))
ROWS = [[str(number), "v"] for number in range(5)]


def read(server: FakeServer, chunk: Chunk = RANGE, *, data_boost: bool = False) -> list[int]:
    """Return the keys of the rows that a chunk gives."""
    client = SpannerClient(server.settings(data_boost=data_boost))
    return [key for batch in read_chunk(client, TABLE, chunk) for key in batch["id"].to_pylist()]


def test_a_chunk_survives_being_kept() -> None:
    """Its text gives it back, with its bounds of any type or its partition token."""
    for chunk in (RANGE, TOKEN, Chunk(1_000_000, None, ("é", None, True, 0.1, "NaN"))):
        assert chunk == Chunk.from_text(chunk.to_text(), 1_000_000)
    assert b64encode(b"part").decode() in TOKEN.to_text()


def test_a_range_is_read_at_its_moment() -> None:
    """A chunk that is a range is a read of its keys at the copy's timestamp."""
    with fake_server(Answer(ROWS, columns=2)) as server:
        assert read(server, data_boost=True) == [0, 1, 2, 3, 4]
    request = server.requests[0]
    assert request.transaction.single_use.read_only.read_timestamp.timestamp() == 1
    assert (request.table, list(request.columns)) == ("t", ["id", "v"])
    (bounds,) = request.key_set.ranges
    assert (list(bounds.start_open), list(bounds.end_closed)) == (["0"], ["9"])
    # Data Boost answers partition tokens only.
    assert not request.data_boost_enabled


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (Chunk(1), {"all_": True}),
        (TOKEN, {"all_": True}),  # the key set with which the table was divided
        (Chunk(1, None, ("9", None)), {"ranges": [{"start_closed": [], "end_closed": ["9", None]}]}),
        (Chunk(1, (-0.0, True), None), {"ranges": [{"start_open": [-0.0, True], "end_closed": []}]}),
    ],
)
def test_a_missing_bound_is_one_without_columns(chunk: Chunk, expected: dict[str, object]) -> None:
    """The first and the last chunk are open to one side, and a table without bounds is read as a whole."""
    with fake_server(Answer(ROWS, columns=2)) as server:
        read(server, chunk)
    assert KeySet(expected) == server.requests[0].key_set


def test_an_answer_with_other_columns_is_refused() -> None:
    """Rows with more values than the table has columns are an error, which names the table."""
    with (
        fake_server(Answer([["1", "v", "w"]], columns=3)) as server,
        pytest.raises(RecordUnreadable, match="A row of `t` has 3 values for 2 columns"),
    ):
        read(server)


def test_a_partition_token_is_read_in_its_transaction() -> None:
    """A chunk that is a token names the session and the transaction in which it counts."""
    with fake_server(Answer(ROWS, columns=2)) as server:
        assert read(server, TOKEN, data_boost=True) == [0, 1, 2, 3, 4]
    request = server.requests[0]
    assert (request.session, request.transaction.id) == ("s/other", b"tx")
    assert (request.partition_token, request.data_boost_enabled) == (b"part", True)


def test_a_broken_answer_continues_from_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a resume token covers are not asked for again, and none is given twice."""
    monkeypatch.setattr(copy_reader, "ROWS_PER_BATCH", 2)
    broken = Answer(ROWS[:3], grpc.StatusCode.UNAVAILABLE, columns=2, has_tokens=True)
    with fake_server(broken, Answer(ROWS[3:], columns=2, has_tokens=True)) as server:
        assert read(server) == [0, 1, 2, 3, 4]
    assert [request.resume_token for request in server.requests] == [b"", b"3"]


def test_without_tokens_a_chunk_is_read_again_while_nothing_was_given() -> None:
    """An answer without tokens that breaks early is asked for again as a whole."""
    broken = Answer(ROWS[:3], grpc.StatusCode.UNAVAILABLE, columns=2)
    with fake_server(broken, Answer(ROWS, columns=2)) as server:
        assert read(server) == [0, 1, 2, 3, 4]


def test_rows_are_never_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once rows without a token were given, a broken answer ends the read; the chunk is tried again."""
    monkeypatch.setattr(copy_reader, "ROWS_PER_BATCH", 1)
    monkeypatch.setattr(copy_reader, "BUFFERED_BATCHES", 2)
    broken = Answer(ROWS[:3], grpc.StatusCode.UNAVAILABLE, columns=2)
    with fake_server(broken, Answer(ROWS, columns=2)) as server, pytest.raises(SourceUnreachable):
        read(server)


def test_long_answers_are_given_out_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of any size fits into memory, with resume tokens and without."""
    monkeypatch.setattr(copy_reader, "ROWS_PER_BATCH", 2)
    monkeypatch.setattr(copy_reader, "BUFFERED_BATCHES", 2)
    rows = [[str(number), "v"] for number in range(11)]
    for has_tokens, max_rows in ((True, 3), (False, 4)):
        with fake_server(Answer(rows, columns=2, has_tokens=has_tokens)) as server:
            batches = list(read_chunk(SpannerClient(server.settings()), TABLE, RANGE))
        assert list(range(11)) == [key for batch in batches for key in batch["id"].to_pylist()]
        assert max(batch.num_rows for batch in batches) <= max_rows


EVENTS = table("events", {"at": "TIMESTAMP"}, {"seen": "TIMESTAMP"})
FINE = "2024-01-01T00:00:00.123456001Z"


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        (
            EVENTS,
            ["2024-01-01T00:00:00.123456000Z", FINE],
        ),  # of a value digits may be cut off
        (EVENTS, [None, None]),
        (with_nanoseconds(EVENTS), [FINE, FINE]),  # as the setting asks
    ],
)
def test_keys_that_stay_themselves_are_copied(schema: TableSchema, row: list[str | None]) -> None:
    """A timestamp is a key where it has microseconds, or where the lake keeps all of its digits."""
    with fake_server(Answer([row], columns=2)) as server:
        batches = list(read_chunk(SpannerClient(server.settings()), schema, RANGE))
    assert [batch.num_rows for batch in batches] == [1]


def test_keys_that_could_become_one_are_refused() -> None:
    """The error names table, column, setting and value, and trying again would not help."""
    with (
        fake_server(Answer([[FINE, None]], columns=2)) as server,
        pytest.raises(KeyUnfit, match=rf"`events\.at` in `nanosecond_columns`.*{FINE}") as caught,
    ):
        list(read_chunk(SpannerClient(server.settings()), EVENTS, RANGE))
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("chunk", "code", "text"),
    [
        (RANGE, "FAILED_PRECONDITION", "has exceeded the maximum timestamp staleness"),  # the version
        (TOKEN, "FAILED_PRECONDITION", "has exceeded the maximum timestamp staleness"),  # the version
        (TOKEN, "NOT_FOUND", "Session not found: s/other"),  # the session
        (TOKEN, "FAILED_PRECONDITION", "Invalid transaction ID. Transaction ID must be >= 5"),  # transaction
        (TOKEN, "INVALID_ARGUMENT", "Invalid partition token"),  # the token
    ],
)
def test_what_is_gone_for_good_is_an_expired_copy(chunk: Chunk, code: str, text: str) -> None:
    """Version, session, transaction or token: without it the copy starts over, and the advice says why."""
    with (
        fake_server(Answer((), grpc.StatusCode[code], text, columns=2)) as server,
        pytest.raises(CopyExpired, match="version_retention_period"),
    ):
        read(server, chunk)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("INTERNAL", "An internal error occurred"),
        ("INTERNAL", "The transaction coordinator failed"),
        ("INVALID_ARGUMENT", "Column not found in table bank_transactions: v"),
    ],
)
def test_an_error_of_another_cause_keeps_the_copy(code: str, text: str) -> None:
    """The copy is not started over because a name in the message resembles a partition token's parts."""
    with fake_server(Answer((), grpc.StatusCode[code], text, columns=2)) as server:
        settings = replace(server.settings(), database="sessions", change_stream="transactions")
        with pytest.raises(SourceError, match=text) as caught:
            list(read_chunk(SpannerClient(settings), TABLE, TOKEN))
    assert SourceError is type(caught.value)
