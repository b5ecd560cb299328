"""The read progress follows from what the committed cycles report, no matter who derives it."""

import json
from pathlib import Path
from shutil import copytree, rmtree
from typing import Final

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LOGGED_FILES, LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.state import read_progress
from cdc_platform.lake.state.cuts import Cut, append_cut
from cdc_platform.lake.state.read_progress import (
    POLLS_STORED_EVERY_S,
    list_failed_reads,
    load_poll,
    load_read_progress,
    save_poll,
)
from cdc_platform.model.base.schemas import RAW_EVENT_RECORDS
from cdc_platform.model.base.stored_names import CYCLE, RAW, READ_PROGRESS
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.model.stream.unread import FailedRead, failed_reads

MAX_DATA_FILES: Final = 6


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rows be replaced after a fourth of the commits: how many there are changes nothing else."""
    monkeypatch.setattr(read_progress, "MAX_DATA_FILES", MAX_DATA_FILES)


def report(
    lake: Lake, cycle: int, versions: dict[str, str], *, is_read: bool = True, tried_micros: int | None = None
) -> None:
    """Commit the reports of a cycle on files."""
    fields = {"is_read": is_read, "error": None if is_read else "Broken", "tried_micros": tried_micros}
    rows = [
        {
            "cycle": cycle,
            "kind": RecordKind.FILE.value,
            "event": {"origin": path, "metadata": json.dumps({"version": version, **fields})},
        }
        for path, version in versions.items()
    ]
    table = pa.Table.from_pylist(rows, RAW_EVENT_RECORDS)
    lake.system_table(RAW).append(table, snapshot_properties={CYCLE: str(cycle)})


def test_the_newest_version_that_was_read_counts(tmp_path: Path) -> None:
    """A file that could not be read stays unread, and a later version takes the place of an earlier one."""
    lake = Lake(LakeSettings(str(tmp_path)), "files", delivers_events=True)
    assert load_read_progress(lake) == {}
    report(lake, 1, {"a": "1", "b": "1"})
    report(lake, 2, {"a": "2"})
    assert load_read_progress(lake) == {"a": "2", "b": "1"}
    report(lake, 3, {"c": "1"}, is_read=False)
    report(lake, 4, {"b": "7"})
    assert load_read_progress(lake) == {"a": "2", "b": "7"}
    assert read_mark(lake.system_table(READ_PROGRESS)).cycle == 4


def test_another_process_continues_from_what_is_stored(tmp_path: Path) -> None:
    """A reader reuses what another one has derived, and adds the cycles since."""
    settings = LakeSettings(str(tmp_path))
    lake = Lake(settings, "files", delivers_events=True)
    report(lake, 1, {"a": "1"})
    load_read_progress(lake)
    report(lake, 2, {"b": "1"})
    other = Lake(settings, "files", delivers_events=True)
    assert {"a": "1", "b": "1"} == load_read_progress(other) == load_read_progress(lake)
    assert other.system_table(READ_PROGRESS).scan().to_arrow().num_rows == 2


def test_cycles_for_weeks_leave_few_rows(tmp_path: Path) -> None:
    """The newest entries replace all rows now and then; before the first cut, the page shows all reads."""
    settings = LakeSettings(str(tmp_path))
    lake, cycles = Lake(settings, "files", delivers_events=True), 2 * MAX_DATA_FILES + 10
    sizes = []
    for cycle in range(1, cycles + 1):
        report(lake, cycle, {f"f{cycle // 10}": str(cycle), "state": str(cycle)})
        load_read_progress(lake)
        sizes.append(_data_files(lake))
    expected = {f"f{cycle // 10}": str(cycle) for cycle in range(1, cycles + 1)} | {"state": str(cycles)}
    assert expected == load_read_progress(lake)
    assert expected == load_read_progress(Lake(settings, "files", delivers_events=True))
    rows = lake.system_table(READ_PROGRESS).scan().to_arrow()
    assert len(rows) == 2 * cycles
    assert rows["version"].null_count > cycles
    assert max(sizes) == MAX_DATA_FILES


def test_reads_that_are_no_longer_shown_leave_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of cycles that were published long ago, only the newest entry of each file stays."""
    monkeypatch.setattr(read_progress, "SHOWN_MICROS", 0)
    lake = Lake(LakeSettings(str(tmp_path)), "files", delivers_events=True)
    for cycle in range(1, MAX_DATA_FILES + 2):
        report(lake, cycle, {"state": str(cycle)})
        append_cut(lake, Cut(cycle, cycle, cycle, {}, cycle))
        load_read_progress(lake)
    expected = [{"cycle": MAX_DATA_FILES + 1, "path": "state", "version": str(MAX_DATA_FILES + 1)}]
    assert lake.system_table(READ_PROGRESS).scan().to_arrow().to_pylist() == expected


def test_a_copy_of_a_lake_from_before_a_replacement_continues(tmp_path: Path) -> None:
    """The process that replaced the rows knows nothing of them once the copy is restored."""
    folder, copied = tmp_path / "lake", tmp_path / "copied"
    lake = Lake(LakeSettings(str(folder)), "files", delivers_events=True)
    for cycle in range(1, MAX_DATA_FILES + 3):
        report(lake, cycle, {f"f{cycle}": "1"})
        load_read_progress(lake)
        if cycle == MAX_DATA_FILES:
            copytree(folder, copied)
    assert _data_files(lake) < MAX_DATA_FILES
    rmtree(folder)
    copied.rename(folder)
    lake = Lake(LakeSettings(str(folder)), "files", delivers_events=True)
    expected = {f"f{cycle}": "1" for cycle in range(1, MAX_DATA_FILES + 1)}
    assert expected == load_read_progress(lake)
    for cycle in (MAX_DATA_FILES + 1, MAX_DATA_FILES + 2):
        report(lake, cycle, {"f1": str(cycle)})
        expected["f1"] = str(cycle)
        assert expected == load_read_progress(lake)
    assert _data_files(lake) < MAX_DATA_FILES


def _data_files(lake: Lake) -> int:
    return len([*lake.system_table(READ_PROGRESS).scan().plan_files()])


def test_failed_reads_count_until_one_succeeds(tmp_path: Path) -> None:
    """Unread files are known with their attempts; looking at them stores nothing."""
    lake = Lake(LakeSettings(str(tmp_path)), "files", delivers_events=True)
    report(lake, 1, {"a": "1", "b": "1"})
    for cycle in (2, 3):
        report(lake, cycle, {"a": "2", "c": "2"}, is_read=False, tried_micros=cycle)
    expected = FailedRead("2", 3, "Broken", tries=2)
    assert {"a": expected, "c": expected} == list_failed_reads(lake)
    assert read_mark(lake.system_table(READ_PROGRESS)).cycle == 0
    progress = load_read_progress(lake)
    assert {"a": expected, "c": expected} == failed_reads(progress) == list_failed_reads(lake)
    assert (progress["a"], progress["b"], progress.get("c")) == ("1", "1", None)
    report(lake, 4, {"a": "2"})
    report(lake, 5, {"c": "3"}, is_read=False, tried_micros=9)
    assert (
        {"c": FailedRead("3", 9, "Broken")}
        == failed_reads(load_read_progress(lake))
        == list_failed_reads(lake)
    )


def test_polls_are_stored_at_a_bounded_rate(tmp_path: Path) -> None:
    """Polls that find nothing leave a mark now and then, which changes nothing of the progress."""
    lake = Lake(LakeSettings(str(tmp_path)), "files", delivers_events=True)
    report(lake, 1, {"a": "1"})
    before, later = load_read_progress(lake), POLLS_STORED_EVERY_S * 1_000_000
    assert load_poll(lake) == 0
    stored = []
    # A clock that was set back is followed.
    for now_micros in (later, 2 * later - 1, 2 * later, later // 2):
        save_poll(lake, now_micros, 3600.0)
        stored.append(load_poll(lake))
    assert stored == [later, later, 2 * later, later // 2]
    assert before == load_read_progress(lake)


def test_a_change_stream_needs_no_mark_of_polls(tmp_path: Path) -> None:
    """Its watermark says when it was last read."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    save_poll(lake, 1, 3600.0)
    assert load_poll(lake) == 0


def test_polls_for_weeks_leave_few_files(tmp_path: Path) -> None:
    """Metadata files that the marks replace are deleted, though no cycle and so no maintenance comes."""
    lake, now_micros = (Lake(LakeSettings(str(tmp_path)), "files", delivers_events=True), clock_micros())
    for number in range(1, LOGGED_FILES + 20):
        save_poll(lake, now_micros + number * POLLS_STORED_EVERY_S * 1_000_000, keep_metadata_s=0.0)
    files = list(tmp_path.glob(f"*/{READ_PROGRESS}/metadata/*.metadata.json"))
    assert LOGGED_FILES < len(files) < LOGGED_FILES + 5
