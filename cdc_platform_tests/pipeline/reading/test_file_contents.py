"""Contents of files with raw records, in their footers."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.commits.data_files import DataFileWriter, read_notes
from cdc_platform.lake.commits.writes import CycleStep, append_cycle
from cdc_platform.model.base.stored_names import RAW
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.reading import file_contents
from cdc_platform.pipeline.reading.file_contents import ContentNotes, data_changes_between, measure_content
from cdc_platform.pipeline.reading.window_content import (
    ShapeFacts,
    ValueFacts,
    WindowContent,
    content_from_json,
)

MICROS: Final = 1_800_000_000_000_000
STORED: Final = """
{"records": 3, "since_micros": 4, "lacks_moments": false, "has_faults": true, "places": [[5, "a"]],
"rows_per_place": 100,
"shapes": [["t", "INSERT", "NEW_ROW", "[]", 2, 5, 6, "a"], [null, null, null, null, 1, 7, 7, "b"]],
"values": {"longest_bytes": 9, "has_unnumbered": false, "lacks_values": true, "lacks_of_new": false,
"has_addresses": false}}
"""
"""The first format of an entry."""


@pytest.fixture
def raw(tmp_path: Path) -> Table:
    """The raw records of a new lake."""
    return Lake(LakeSettings(str(tmp_path)), "p", delivers_events=True).system_table(RAW)


def rows_of(raw: Table, *moments: int, kind: RecordKind = RecordKind.DATA_CHANGE) -> pa.Table:
    """Return the raw records of events at some moments."""
    rows = [
        {
            "cycle": 1,
            "kind": kind.value,
            "record_timestamp": to_datetime(MICROS + moment),
            "record_order": str(moment),
            "table_name": "t",
            "mod_type": "INSERT",
            "column_types": "[]",
            "mods": [{"keys": "{}", "new_values": "{}"}],
            "event": {"origin": "f", "source_timestamp": to_datetime(MICROS)},
        }
        for moment in moments
    ]
    return pa.Table.from_pylist(rows, raw.schema().as_arrow())


def commit(raw: Table, number: int, rows: pa.Table, *, has_notes: bool = True) -> None:
    """Commit rows as a cycle with one file."""
    append_cycle(rows, raw, CycleStep(number - 1, number), {}, ContentNotes if has_notes else None)


def measured(raw: Table, after: int | None, until: int) -> WindowContent:
    """Return the content between two moments."""
    return measure_content(raw, None if after is None else MICROS + after, MICROS + until)


def test_the_content_of_files_needs_no_read(raw: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The footers of several cycles have what the records have; other kinds of records do not count."""
    reports = rows_of(raw, 2, kind=RecordKind.FILE)
    commit(raw, 1, pa.concat_tables([rows_of(raw, 1), reports, rows_of(raw, 2)]))
    commit(raw, 2, rows_of(raw, 3))
    monkeypatch.delattr(file_contents, "read_repeated_texts")
    shape = ("t", "INSERT", None, "[]")
    content = measured(raw, None, 3)
    assert {shape: ShapeFacts(3, MICROS + 1, MICROS + 3, "1", "3")} == content.shapes
    assert (3, ValueFacts(2)) == (content.records, content.values)
    assert sorted(content.places) == [(MICROS + 1, "1"), (MICROS + 3, "3")]
    assert measured(raw, 2, 3).records == 1
    assert measured(raw, 3, 4) == WindowContent()


@pytest.mark.parametrize("has_notes", [True, False])
def test_records_are_read_if_a_file_lacks_notes_of_them(raw: Table, *, has_notes: bool) -> None:
    """Compaction writes files without notes, and a window may end within a file."""
    commit(raw, 1, rows_of(raw, 1, 2), has_notes=has_notes)
    content = measured(raw, 1, 2)
    assert {("t", "INSERT", None, "[]"): ShapeFacts(1, MICROS + 2, MICROS + 2, "2", "2")} == content.shapes
    assert content.values is None
    assert (measured(raw, None, 2).values is None) != has_notes


@pytest.mark.parametrize("has_notes", [True, False])
def test_only_the_files_whose_notes_do_not_suffice_are_read(raw: Table, *, has_notes: bool) -> None:
    """The rows of a file with notes are not read, although the window's first file has none, or is cut."""
    commit(raw, 1, rows_of(raw, 1, 2), has_notes=has_notes)
    commit(raw, 2, rows_of(raw, 3, 4, 5))
    expected = measured(raw, 1, 5)
    for file in raw.scan(data_changes_between(MICROS + 2, MICROS + 5)).plan_files():
        erase_rows(Path(file.file.file_path.removeprefix("file://")))
    raw.refresh()
    file_contents._measure.cache_clear()  # noqa: SLF001  as in a new process
    assert expected == measured(raw, 1, 5)
    assert expected.records == 4
    assert expected.values is None


def erase_rows(file: Path) -> None:
    """Overwrite the rows of a Parquet file, and keep its footer."""
    content = file.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    file.write_bytes(content[:4] + bytes(len(content) - 4 - footer) + content[-footer:])


def test_a_large_file_notes_fewer_places(raw: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content is noted all the same, with places that are evenly spread."""
    monkeypatch.setattr(file_contents, "_MAX_CHARACTERS", 1_000)
    commit(raw, 1, rows_of(raw, *range(10_000)))
    content = measured(raw, None, 10_000)
    assert content.values is not None
    assert len(content.places) == -(-10_000 // content.rows_per_place)
    steps = {after - place for (place, _), (after, _) in pairwise(content.places)}
    assert {content.rows_per_place} == steps


@pytest.mark.parametrize("seed", range(12))
def test_noted_and_read_contents_are_equal(raw: Table, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Both ways find the same shapes and moments, for any records."""
    dice = Random(seed)  # noqa: S311  a test's rows, not a secret
    for cycle in (1, 2, 3):
        commit(raw, cycle, drawn_rows(raw, dice, cycle))
    noted = measured(raw, None, 100)
    assert noted.values is not None
    monkeypatch.setattr(file_contents, "_content_of_file", lambda *_: None)
    read = measured(raw, None, 101)
    assert replace(noted, values=None, places=()) == replace(read, values=None, places=())


def drawn_rows(raw: Table, dice: Random, cycle: int) -> pa.Table:
    """Return raw records with random facts, which begin with a data change."""
    rows = [
        {
            "cycle": cycle,
            "kind": dice.choice(["data_change"] * 4 + ["file", "heartbeat"]) if number else "data_change",
            "record_timestamp": to_datetime(dice.choice([MICROS + cycle * 10 + dice.randrange(10), -5, 0])),
            "record_order": dice.choice([None, "", f"a{number}"]),
            "table_name": dice.choice([None, "t", "ü\u2028"]),
            "mod_type": dice.choice([None, "INSERT", "UPDATE", "SNAPSHOT", "TRUNCATE"]),
            "column_types": dice.choice([None, "[]", "[1]"]),
            "mods": dice.choice([None, [], [{"keys": "{}", "new_values": None}]]),
            "event": dice.choice(
                [
                    None,
                    {"origin": "f", "source_timestamp": None},
                    {"origin": "f", "source_timestamp": to_datetime(MICROS - number), "fault": "f"},
                ]
            ),
        }
        for number in range(dice.randrange(1, 40))
    ]
    return pa.Table.from_pylist(rows, raw.schema().as_arrow())


def test_a_content_with_large_shapes_is_not_noted(raw: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Footers stay small, and the records are read instead."""
    monkeypatch.setattr(file_contents, "_MAX_CHARACTERS", 10)
    commit(raw, 1, rows_of(raw, 1))
    assert (measured(raw, None, 1).records, measured(raw, None, 1).values) == (1, None)


def test_data_changes_have_their_own_row_groups(raw: Table) -> None:
    """A query for reports skips the others by the statistics of the groups."""
    rows = [rows_of(raw, 1), rows_of(raw, 1, kind=RecordKind.FILE), rows_of(raw, 2)]
    (file,) = DataFileWriter.of(raw, ContentNotes).write(pa.concat_tables(rows).to_batches())
    with raw.io.new_input(file.file_path).open() as stream:
        parquet = pq.ParquetFile(stream)
        groups = [parquet.read_row_group(number, ["kind"])["kind"].to_pylist() for number in (0, 1)]
    assert groups == [["data_change", "data_change"], ["file"]]


def test_the_oldest_format_stays_readable() -> None:
    """Files keep their notes as long as they exist."""
    shapes = {
        ("t", "INSERT", "NEW_ROW", "[]"): ShapeFacts(2, 5, 6, "a"),
        (None,) * 4: ShapeFacts(1, 7, 7, "b"),
    }
    expected = WindowContent(
        3, shapes, 4, has_faults=True, values=ValueFacts(9, lacks_values=True), places=((5, "a"),)
    )
    assert expected == content_from_json(json.loads(STORED))


def test_notes_of_another_program_are_damage(raw: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file."""
    monkeypatch.setattr(ContentNotes, "texts", lambda _: {"cdc.content.1": "{}"})
    commit(raw, 1, rows_of(raw, 1))
    snapshot = head(raw)
    assert snapshot is not None
    (task,) = raw.scan(data_changes_between(None, MICROS + 1)).plan_files()
    assert read_notes(raw.io, task.file.file_path)["cdc.content.1"] == "{}"
    with pytest.raises(LakeDamaged, match=task.file.file_path.rpartition("/")[2]):
        measured(raw, None, 1)
