"""Files cut into splits: where a split may begin, and that no kind of line keeps a cycle from ending."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform.errors import SourceUnreachable
from cdc_platform.sources import text_files
from cdc_platform.sources.debezium.files import reader, segments
from cdc_platform.sources.debezium.files.decoding import FileSplitDecoder, event_files
from cdc_platform.sources.debezium.files.split_starts import SplitStarts
from cdc_platform.sources.debezium.files.splits import FileSplitter, SplitSize
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.sources.debezium.transactions.progress import FileProgress
from cdc_platform_tests.sources.debezium.cycles import Cycles
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with
from cdc_platform_tests.support.debezium.connector import Connector, cycles_over, feed, keys_of

LINES: Final = 10
"""Lines of a cycle, at least."""


def snapshot_row(key: int, snapshot: str = "true", lsn: int = 300) -> str:
    """Return a row that a snapshot found."""
    source = {"snapshot": snapshot, "lsn": lsn, "sequence": None}
    return line(envelope("r", after={"id": key, "n": key}, source=source), {"id": key})


def flat_row(key: int) -> str:
    """Return a flattened event that does not state its transaction."""
    place = {"__op": "c", "__source_schema": "public", "__source_table": "orders", "__source_lsn": key + 1}
    return line({"id": key, "n": key, **place, "__deleted": "false"}, {"id": key})


KINDS: Final[dict[str, Callable[[int], str]]] = {
    "rows of the first snapshot": snapshot_row,
    "rows of an incremental snapshot": lambda key: snapshot_row(key, "incremental"),
    "flattened events": flat_row,
    "no events": lambda key: f"no event {key}",
}


@pytest.mark.parametrize("has_transaction_metadata", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cycle_ends_among_lines_of_any_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, has_transaction_metadata: bool
) -> None:
    """No cycle reads many more lines than it has to, and all of them arrive."""
    monkeypatch.setattr(reader, "MAX_LINES", LINES)
    stream = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=has_transaction_metadata)
    cycles = Cycles(stream)
    feed(cycles, [KINDS[kind](key) for key in range(5 * LINES)])
    counts = [len(cycles.log)]
    while not FileProgress.of(cycles.read_progress[str(tmp_path / "events.jsonl")]).version:
        cycles.read()
        counts.append(len(cycles.log) - sum(counts))
    assert max(counts) <= LINES + 2
    assert sum(counts) == 5 * LINES


def test_a_cycle_continues_after_a_lost_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that waits for a transaction whose END does not come holds up no cycle for ever."""
    monkeypatch.setattr(reader, "MAX_LINES", 4)
    connector = Connector()
    connector.emit("YQ==", transactional=False)
    first = [snapshot_row(99, "incremental", lsn=10_000), *connector.lines]
    connector.whole(1)
    connector.lines.pop()
    for key in range(2, 12):
        connector.whole(key)
    cycles = feed(cycles_over(tmp_path), [*first, *connector.lines])
    for _ in range(40):
        cycles.read()
    assert set(range(2, 12)) <= {key for key in keys_of(cycles) if key is not None}


def test_no_split_ends_within_a_key_change(tmp_path: Path) -> None:
    """The halves stay together although the second one cannot be read."""
    connector = Connector()
    connector.insert(1)
    connector.move(1, 2)
    broken = [*connector.lines[:2], "no message"]
    connector.transaction += 1
    connector.insert(3)
    lines = [*broken, connector.lines[-1]]
    logs = []
    for split_lines in (100, 2):
        folder = tmp_path / str(split_lines)
        cycles = Cycles(settings_with(input=FilesInput(str(folder))), split_lines)
        feed(cycles, lines)
        logs.append([(row["record_order"], bool(row["event"]["fault"])) for row in cycles.log])
    assert logs[0] == logs[1]
    assert any(is_faulty for _, is_faulty in logs[0])


@pytest.mark.parametrize("has_transaction_metadata", [True, False])
@pytest.mark.parametrize("is_gzip", [True, False])
def test_splits_are_the_same_however_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_transaction_metadata: bool, is_gzip: bool
) -> None:
    """Whether chunks have many lines or parts of one, splits end at the same lines and bytes."""
    connector = Connector()
    for key in range(30):
        connector.whole(key)
    path = tmp_path / "events.jsonl"
    text = "".join(f"{line}\n" for line in [*connector.lines, '{"open": 1}']).encode()
    path.write_bytes(gzip.compress(text) if is_gzip else text)
    stream = settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=has_transaction_metadata)
    cut = []
    for chunk_bytes in (50, 1_000, 5_000, 1 << 18):
        for module in (segments, text_files):
            monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
        store = event_files(stream)
        files = list(store.list_files())
        starts = SplitStarts(stream, DecoderState())
        begun = dict.fromkeys((file.path for file in files), 1)
        splitter = FileSplitter(store, files, begun, starts, SplitSize(7, 1 << 20), 1 << 20)
        cut.append(list(splitter.splits()))
    assert len(cut[0]) > 5
    assert [cut[0]] * len(cut) == cut


@pytest.mark.parametrize("name", ["\ud800", "a\ud800b"])
def test_names_that_are_not_unicode_are_faults_or_escaped(tmp_path: Path, name: str) -> None:
    """A transaction of such a name is buffered, passed on and refused like any other."""
    connector = Connector()
    connector.whole(1)
    place = {"txId": None, "lsn": 900, "sequence": json.dumps(["800", "900"])}
    block = {"id": f"{name}:900", "total_order": 1}
    event = envelope("c", after={"id": 2, "n": 2}, source=place, transaction=block)
    cycles = feed(cycles_over(tmp_path), [*connector.lines, line(event, {"id": 2})])
    for key in (3, 4):
        first = len(connector.lines)
        connector.whole(key)
        feed(cycles, connector.lines[first:])
    assert {1, 3} <= set(_sound_keys(cycles))


def _sound_keys(cycles: Cycles) -> list[Any]:
    return [json.loads(row["mods"][0]["keys"])["id"] for row in cycles.log if row["event"]["fault"] is None]


def test_a_file_that_is_cut_after_the_plan_fails_the_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that were planned and are gone are not taken for lines that were read."""
    connector = Connector()
    for key in range(3):
        connector.insert(key)
    file = tmp_path / "events.jsonl"
    blocks = FileSplitDecoder.blocks

    def cut(decoder: FileSplitDecoder, number: int) -> Any:
        file.write_text(f"{connector.lines[0]}\n", encoding="utf-8")
        return blocks(decoder, number)

    monkeypatch.setattr(FileSplitDecoder, "blocks", cut)
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path))))
    with pytest.raises(SourceUnreachable, match="was cut while it was read"):
        feed(cycles, connector.lines)
