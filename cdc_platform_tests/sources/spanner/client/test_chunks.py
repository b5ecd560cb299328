from collections.abc import Sequence

import pytest
from google.cloud.spanner_v1.types import PartialResultSet, StructType

from cdc_platform.errors import RecordUnreadable
from cdc_platform.sources.spanner.client.chunks import RowAssembler, merge_chunks
from cdc_platform.sources.spanner.client.wire import rows_parser
from cdc_platform_tests.sources.spanner.fake_server import Plain, to_value


def message(values: Sequence[Plain], *, goes_on: bool = False) -> object:
    """Return a partial result set of two columns, as the client parses it."""
    fields = [StructType.Field(name=name) for name in ("a", "b")]
    partial = PartialResultSet(metadata={"row_type": StructType(fields=fields)}, chunked_value=goes_on)
    PartialResultSet.pb(partial).values.extend(map(to_value, values))
    return rows_parser()(PartialResultSet.serialize(partial))


def encoded(*plain: Plain) -> list[bytes]:
    """Return values as bytes."""
    return [to_value(item).SerializeToString() for item in plain]


@pytest.mark.parametrize(
    ("left", "right", "merged"),
    [
        ("foo", "bar", "foobar"),
        ([True, False], [True], [True, False, True]),  # what is neither text nor list is whole
        (["a", "b"], ["c", "d"], ["a", "bc", "d"]),
        (["a", ["b", "c"]], [["d"], "e"], ["a", ["b", "cd"], "e"]),
        ([], ["a"], ["a"]),
        (["a"], [], ["a"]),
        (["a", None], ["b"], ["a", None, "b"]),
        (["a"], [None, "b"], ["a", None, "b"]),  # only values of one kind meet
        ([["a"]], [None, ["b"]], [["a"], None, ["b"]]),
        (["a"], [["b"]], ["a", ["b"]]),
        ([["a"]], ["b"], [["a"], "b"]),
    ],
)
def test_chunks_merge_as_spanner_documents(left: Plain, right: Plain, merged: Plain) -> None:
    """Two chunks make one value: texts and lists are joined where they meet."""
    assert encoded(merged) == [merge_chunks(*encoded(left, right))]


def test_many_chunks_merge_at_once() -> None:
    """A value of several messages is the value of all its chunks."""
    assert encoded(["abc", ["d"], "e"]) == [merge_chunks(*encoded(["a"], ["b"], ["c", []], [["d"], "e"]))]


def test_rows_come_from_any_messages() -> None:
    """Rows may begin, end and be cut anywhere in the messages."""
    messages = [
        message(["1"]),
        message(["2", "3", "fo"], goes_on=True),
        message(["o"], goes_on=True),
        message(["!", "5", "6"]),
    ]

    rows = list(RowAssembler().rows(messages))

    assert [encoded("1", "2"), encoded("3", "foo!"), encoded("5", "6")] == rows


@pytest.mark.parametrize("last", [message(["1"]), message(["1", "2"], goes_on=True)])
def test_answer_that_ends_inside_a_row_is_an_error(last: object) -> None:
    """Half a row is never taken for a row."""
    with pytest.raises(RecordUnreadable, match="middle of a row"):
        list(RowAssembler().rows([last]))


@pytest.mark.parametrize(
    ("left", "right"), [("a", None), ("a", ["b"]), (["a"], "b"), (["a"], None), (None, "a"), (True, False)]
)
def test_chunks_of_different_kinds_are_an_error(left: Plain, right: Plain) -> None:
    """Two values that cannot be parts of one are not taken for the first of them."""
    with pytest.raises(RecordUnreadable, match="parts of one value"):
        merge_chunks(*encoded(left, right))


@pytest.mark.parametrize("chunk", [b"", b"\x1a\x05ab", b"\x32\xff"])
def test_a_chunk_that_is_no_value_is_an_error(chunk: bytes) -> None:
    """Bytes that are not protobuf value end the answer with the error of records."""
    with pytest.raises(RecordUnreadable, match="not a value"):
        merge_chunks(b"\x1a\x01a", chunk + b"\xff")
