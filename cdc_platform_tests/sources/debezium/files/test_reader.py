"""Files that are larger than what one cycle reads: each cycle takes a part, and the log is the same."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import pytest

from cdc_platform.errors import LakeDamaged
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.sources.debezium.files import reader, segments
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.sources.debezium.transactions.progress import FileProgress, read_progress_of
from cdc_platform.sources.debezium.wire import lines
from cdc_platform.sources.file_store import FileStore
from cdc_platform_tests.sources.debezium.cycles import Cycles
from cdc_platform_tests.sources.debezium.written_events import settings_with
from cdc_platform_tests.support.debezium.connector import Connector, cycles_over, faults_of, keys_of

PARTS: Final = 7
"""Lines of a cycle."""


@pytest.fixture(autouse=True)
def _small_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_LINES", PARTS)


def written(folder: Path, lines: list[str], *, is_gzip: bool = False) -> Path:
    """Write a file of lines, and return it."""
    data = "\n".join([*lines, ""]).encode()
    path = folder / ("events.jsonl.gz" if is_gzip else "events.jsonl")
    path.write_bytes(gzip.compress(data) if is_gzip else data)
    return path


def read_all(cycles: Cycles, path: Path) -> list[int]:
    """Read until the file is read to its end, and return how many events each cycle has given."""
    counts = []
    while True:
        rows = cycles.read()
        counts.append(sum(row["kind"] == RecordKind.DATA_CHANGE for row in rows))
        progress = FileProgress.of(cycles.read_progress[str(path)])
        if progress.version:
            return counts
        assert len(counts) < 100


def test_a_file_that_grows_while_it_is_read_bounds_its_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written since the folder was listed is not little that is left, and no damage."""
    connector = Connector()
    for key in range(200):
        connector.transaction += 1
        connector.insert(key)
    path = written(tmp_path, connector.lines[:9])
    list_files = FileStore.list_files

    def listed(store: FileStore) -> Iterator[SourceFile]:
        files = [*list_files(store)]
        if len(path.read_text().splitlines()) < len(connector.lines):
            written(tmp_path, connector.lines)
        return iter(files)

    monkeypatch.setattr(FileStore, "list_files", listed)
    counts = read_all(Cycles(settings_with(input=FilesInput(str(tmp_path)))), path)
    assert counts[0] <= 2 * PARTS
    assert sum(counts) == 200


@pytest.mark.parametrize(("is_gzip", "counts"), [(False, [7, 7, 10]), (True, [7, 7, 7, 3])])
def test_no_cycle_is_left_with_few_lines(tmp_path: Path, counts: list[int], *, is_gzip: bool) -> None:
    """The last cycle reads half as much again if that is all; the lines left in a gzip are unknown."""
    connector = Connector()
    for key in range(24):
        connector.transaction += 1
        connector.insert(key)
    path = written(tmp_path, connector.lines, is_gzip=is_gzip)
    assert counts == read_all(Cycles(settings_with(input=FilesInput(str(tmp_path)))), path)


@pytest.mark.parametrize("is_gzip", [False, True])
def test_a_large_file_is_read_in_parts(tmp_path: Path, is_gzip: bool) -> None:
    """No cycle takes many more lines than it has to; nothing is lost, doubled or out of order."""
    connector = Connector()
    for key in range(50):
        connector.transaction += 1
        connector.insert(key)
    path = written(tmp_path, connector.lines, is_gzip=is_gzip)
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path))))
    counts = read_all(cycles, path)
    assert max(counts) <= PARTS + 1
    assert keys_of(cycles) == list(range(50))
    assert sum(counts) == 50


def test_halves_of_key_changes_meet(tmp_path: Path) -> None:
    """A part may end behind the first half of a key change, which then comes with the second one."""
    connector = Connector()
    connector.insert(0)
    for key in range(20):
        connector.move(key, key + 1)
    path = written(tmp_path, connector.lines)
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path))))
    read_all(cycles, path)
    assert faults_of(cycles) == []
    assert keys_of(cycles) == [0, *(key for move in range(20) for key in (move, move + 1))]


@pytest.mark.parametrize("is_gzip", [False, True])
def test_a_transaction_that_is_longer_than_a_part_comes_whole(tmp_path: Path, is_gzip: bool) -> None:
    """A cycle reads on until something may pass."""
    connector = Connector()
    connector.whole(1, 2)
    connector.whole(*range(3, 60))
    connector.whole(60)
    connector.begin()
    connector.insert(61)
    path = written(tmp_path, connector.lines, is_gzip=is_gzip)
    cycles = cycles_over(tmp_path)
    read_all(cycles, path)
    assert keys_of(cycles) == list(range(1, 61))
    assert faults_of(cycles) == []


def test_files_behind_a_large_one_wait(tmp_path: Path) -> None:
    """Later files enter the log later, even if the first one has lines left for the next cycle."""
    connector = Connector()
    for key in range(30):
        connector.transaction += 1
        connector.insert(key)
    first, second = (tmp_path / name for name in ("a.jsonl", "b.jsonl"))
    first.write_text("\n".join(connector.lines[:20]), encoding="utf-8")
    second.write_text("\n".join(connector.lines[20:]), encoding="utf-8")
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path))))
    cycles.read()
    assert str(second) not in cycles.read_progress
    read_all(cycles, first)
    read_all(cycles, second)
    assert keys_of(cycles) == list(range(30))


def test_a_store_that_fails_within_a_file_has_given_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines that were read are in the log; the next cycle reports the error, and a later one resumes."""
    monkeypatch.setattr(reader, "MAX_LINES", 10**6)
    connector = Connector()
    for key in range(6):
        connector.insert(key)
    path = written(tmp_path, connector.lines)
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path))))
    open_stream = FileStore.open_stream
    half_bytes = len("\n".join([*connector.lines[:3], ""]).encode())

    @contextmanager
    def failing(store: FileStore, name: str, begin: int = 0) -> Iterator["_Failing"]:
        with open_stream(store, name, begin) as stream:
            yield _Failing(stream, half_bytes - begin)

    monkeypatch.setattr(FileStore, "open_stream", failing)
    with monkeypatch.context() as patching:
        patching.setattr(segments, "check_gzip", lambda _stream, _max_bytes: None)
        assert not any(_errors(cycles.read()))
        assert (keys_of(cycles), FileProgress.of(cycles.read_progress[str(path)]).version) == ([0, 1, 2], "")
        (error,) = _errors(cycles.read())
        assert "SourceUnreachable" in error
    monkeypatch.setattr(FileStore, "open_stream", open_stream)
    cycles.read()
    assert keys_of(cycles) == list(range(6))


def _errors(rows: list[dict[str, Any]]) -> list[str]:
    reports = [json.loads(row["event"]["metadata"]) for row in rows if row["kind"] == RecordKind.FILE]
    return [report["error"] for report in reports if report.get("error")]


class _Failing:
    """A stream that breaks off behind some bytes."""

    def __init__(self, stream: BinaryIO, max_bytes: int) -> None:
        self._stream, self._left_bytes = stream, max_bytes

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        if self._left_bytes <= 1:
            raise OSError("the connection is lost")
        data = self._stream.read(min(size, self._left_bytes))
        self._left_bytes -= len(data)
        return data


@pytest.mark.parametrize(
    "text", ['["v", -5, 0, true]', '["v", 5, -1, false]', f'["v", {2**63}, 0, false]', '["v", "x", 0, false]']
)
def test_a_progress_that_no_cycle_writes_is_damage(text: str) -> None:
    """Neither lines nor bytes are negative, or beyond what a file has."""
    with pytest.raises(LakeDamaged):
        read_progress_of({"a.jsonl": text}, "a.jsonl", FileProgress.of)


def test_a_line_beyond_the_bound_is_one_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept as its beginning with its length; the lines around it arrive."""
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 2_000)
    connector = Connector()
    connector.insert(1)
    connector.insert(2, big="x" * 3_000)
    connector.insert(3)
    path = written(tmp_path, connector.lines, is_gzip=True)
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path))))
    read_all(cycles, path)
    (fault,) = faults_of(cycles)
    assert "The line cannot be read as a message" in fault
    texts = [row["event"]["text"] for row in cycles.log if row["event"]["fault"]]
    assert "bytes, and the limit is 2000)" in texts[0]
    cycles.log = [row for row in cycles.log if row["event"]["fault"] is None]
    assert keys_of(cycles) == [1, 3]


def test_a_part_ends_between_transactions(tmp_path: Path) -> None:
    """Without transaction metadata, the changes of one transaction are read together: their keys may move."""
    connector = Connector()
    for key in range(30):
        connector.transaction = 700 + key // 10
        connector.insert(key)
    path = written(tmp_path, connector.lines)
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path))))
    assert read_all(cycles, path) == [10, 10, 10]
    assert keys_of(cycles) == list(range(30))


def test_a_part_without_progress_continues(tmp_path: Path) -> None:
    """A fault that passes ends no part while all else waits: the next cycle would read the same again."""
    connector = Connector()
    connector.begin()
    for key in range(20):
        connector.insert(key)
    connector.end()
    # Without its beginning, the content of a transaction is unknown.
    path = written(tmp_path, [*connector.lines[1:4], "no message", *connector.lines[4:]])
    cycles = cycles_over(tmp_path)
    read_all(cycles, path)
    assert len(faults_of(cycles)) == 1
    cycles.log = [row for row in cycles.log if row["event"]["fault"] is None]
    assert keys_of(cycles) == list(range(20))
