"""Streams that are decoded in parallel splits: the result is that of one decoder."""

import gzip
import json
import os
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.sources.debezium.files.decoding import FileSplitDecoder, event_files
from cdc_platform.sources.debezium.files.segments import Segment
from cdc_platform.sources.debezium.files.splits import FileSplit
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.splits.outcome import OUTCOME, SplitOutcome
from cdc_platform.sources.debezium.splits.rounds import SplitRounds
from cdc_platform.sources.debezium.splits.split_reader import SplitContext
from cdc_platform_tests.sources.debezium.captures_read import GOLDEN, settings_for, truth_of
from cdc_platform_tests.sources.debezium.cycles import Cycles, append
from cdc_platform_tests.sources.debezium.identity_streams import identity_streams
from cdc_platform_tests.sources.debezium.written_events import settings_with
from cdc_platform_tests.strategies import share_of_profile
from cdc_platform_tests.support.debezium.connector import Connector

CAPTURES: Final = (
    *("keys", "transactions", "truncates", "identities", "incremental_snapshot", "evolve"),
    *("flat_default", "flat_rewrite", "partition_leaf"),
)
WRITTEN_NS: Final = 1_700_000_000_000_000_000
"""When all files were written: their versions, which are in identities, must not differ."""


@cache
def capture_lines(name: str) -> tuple[str, ...]:
    """Return the messages of a capture."""
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as opened:
        return tuple(text.rstrip("\n") for text in opened)


def read(
    stream: DebeziumSettings, folder: Path, lines: Sequence[str], ends: Sequence[int], split_lines: int
) -> tuple[list[list[str]], dict[str, str]]:
    """Return the rows of each cycle, sorted, and the read progress in the end."""
    cycles, file = Cycles(stream, split_lines), folder / "events.jsonl"
    rows: list[list[str]] = []
    file.unlink(missing_ok=True)
    for begin, end in zip([0, *ends], [*ends, len(lines)], strict=True):
        append(file, lines[begin:end])
        os.utime(file, ns=(WRITTEN_NS, WRITTEN_NS))
        rows.append(sorted(json.dumps(row, default=str, sort_keys=True) for row in cycles.read()))
    return rows, cycles.read_progress


@contextmanager
def counted_rounds() -> Iterator[list[int]]:
    """Yield a list that gets the number of splits of each round."""
    counts: list[int] = []
    take = SplitRounds._take  # noqa: SLF001  nothing else shows that rounds are few

    def counting(self: Any, splits: Any, *rest: Any) -> Any:
        counts.append(len(splits))
        return take(self, splits, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SplitRounds, "_take", counting)
        yield counts


@pytest.mark.parametrize("has_transaction_metadata", [True, False])
@pytest.mark.parametrize("capture", CAPTURES)
def test_captures_come_to_the_same(capture: str, *, has_transaction_metadata: bool, tmp_path: Path) -> None:
    """What a real connector has sent gives the same rows in splits of few lines, and the same progress."""
    stream = settings_for(
        truth_of(capture), input=FilesInput(str(tmp_path)), has_transaction_topic=has_transaction_metadata
    )
    lines = capture_lines(capture)
    ends = [len(lines) // 3, len(lines) // 2]
    expected = read(stream, tmp_path, lines, ends, len(lines))
    with counted_rounds() as counts:
        assert expected == read(stream, tmp_path, lines, ends, 3)
    assert sum(counts) > len(counts)


@pytest.mark.parametrize("has_transaction_metadata", [True, False])
def test_names_with_one_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, has_transaction_metadata: bool
) -> None:
    """Transactions whose names have the same digest are read, if in fewer splits."""
    stream = settings_for(
        truth_of("keys"), input=FilesInput(str(tmp_path)), has_transaction_topic=has_transaction_metadata
    )
    lines = capture_lines("keys")
    expected = read(stream, tmp_path, lines, [], len(lines))
    monkeypatch.setattr("cdc_platform.sources.debezium.splits.split_reader.digest", lambda _: bytes(8))
    with counted_rounds() as counts:
        assert expected == read(stream, tmp_path, lines, [], 3)
    assert len(counts) < 5


@st.composite
def streams(draw: st.DrawFn) -> list[str]:
    """Return what a connector sends of a few transactions, some of them twice."""
    connector, alive = Connector(), set[int]()
    for _ in range(draw(st.integers(2, 12))):
        connector.begin()
        for _ in range(draw(st.integers(0, 4))):
            _change(draw, connector, alive)
        connector.end()
    lines = connector.lines
    if draw(st.booleans()):
        again = draw(st.integers(0, len(lines)))
        lines = [*lines, *lines[again:]]
    for place in draw(st.lists(st.integers(0, len(lines)), max_size=2)):
        lines = [*lines[:place], draw(st.sampled_from(["", "no message", "{}"])), *lines[place:]]
    return lines


def _change(draw: st.DrawFn, connector: Connector, alive: set[int]) -> None:
    key = draw(st.integers(0, 5))
    if draw(st.integers(0, 19)) == 0:
        connector.truncate()
        alive.clear()
    elif key not in alive:
        connector.insert(key)
        alive.add(key)
    elif draw(st.booleans()):
        connector.update(key, n=draw(st.integers(0, 9)))
    else:
        alive.remove(key)
        other = draw(st.integers(0, 5))
        if other in alive or other == key:
            connector.delete(key)
        else:
            connector.move(key, other, n=1)
            alive.add(other)


@share_of_profile(0.6)
@given(
    lines=streams() | identity_streams(),
    split_lines=st.integers(1, 9),
    parts=st.lists(st.floats(0, 1), max_size=2),
    has_transaction_metadata=st.booleans(),
)
def test_streams_come_to_the_same(
    lines: list[str], split_lines: int, parts: list[float], *, has_transaction_metadata: bool
) -> None:
    """For any stream, and any ends of cycles and splits, the rows and the progress are the same."""
    with TemporaryDirectory() as folder:
        stream = settings_with(input=FilesInput(folder), has_transaction_topic=has_transaction_metadata)
        ends = sorted(round(part * len(lines)) for part in parts)
        expected = read(stream, Path(folder), lines, ends, len(lines) + 1)
        assert expected == read(stream, Path(folder), lines, ends, split_lines)


def test_most_splits_are_decoded_once(tmp_path: Path) -> None:
    """Once a table is known, splits of its changes are independent of each other."""
    connector = Connector()
    for key in range(40):
        connector.whole(key)
    stream = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True)
    with counted_rounds() as counts:
        read(stream, tmp_path, connector.lines, [], 3)
    assert counts[0] == 40
    assert sum(counts) == 40 + len(counts) - 1


def test_splits_that_show_their_identity_are_decoded_once(tmp_path: Path) -> None:
    """Under REPLICA IDENTITY FULL, only splits that begin with a delete need what others have shown."""
    connector = Connector(is_full=True)
    for key in range(1, 41):
        connector.whole(key)
    for key in range(1, 41):
        connector.begin()
        connector.update(key, n=key) if key != 20 else connector.delete(key)
        connector.end()
    stream = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True)
    with counted_rounds() as counts:
        read(stream, tmp_path, connector.lines, [], 3)
    expected = [80, 21]
    assert expected == counts


def test_splits_that_share_a_transaction_become_one(tmp_path: Path) -> None:
    """What a restart sends again belongs to the transaction that has come before."""
    connector = Connector()
    connector.whole(1, 2, 3)
    connector.whole(4)
    lines = [*connector.lines, *connector.lines]
    stream = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True)
    with counted_rounds() as counts:
        rows, _ = read(stream, tmp_path, lines, [], 1)
    assert counts[:2] == [4, 1]
    changes = [json.loads(text) for text in rows[0] if '"data_change"' in text]
    assert {change["number_of_records_in_transaction"] for change in changes} == {1, 3}
    assert len(changes) == 4


def test_the_driver_gets_few_bytes_of_a_transaction(tmp_path: Path) -> None:
    """Without transaction metadata each event may be a transaction, of which names alone would take much."""
    connector, events = Connector(), 3_000
    for key in range(events):
        connector.whole(key)
    changes = [text for text in connector.lines if '"op"' in text]
    append(tmp_path / "events.jsonl", changes)
    stream = settings_with(input=FilesInput(str(tmp_path)))
    (file,) = event_files(stream).list_files()
    context = SplitContext(stream.to_options(), 1, ReadWindow("", 1, 2), is_one_stream=True)
    split = FileSplit((Segment(file, 0, 0, events),))
    *_, last = FileSplitDecoder(context, None, [split]).blocks(0)
    octets = last.column(OUTCOME)[0].as_py()
    tracemalloc.start()
    outcome = SplitOutcome.from_bytes(octets)
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(outcome.names) == events
    # The rest is of the line, and of the whole split.
    assert used_bytes / events < 2 * 8 + 4
