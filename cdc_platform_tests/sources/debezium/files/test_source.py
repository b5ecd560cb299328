"""Debezium's events in files, as the pipeline sees them."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest

from cdc_platform.errors import OffsetsLost, SourceNotFound, SpoolUnusable
from cdc_platform.lake.state.read_progress import replay_path
from cdc_platform.model.stream.lineage import Lineage, begin
from cdc_platform.model.stream.read_windows import ReadRequest
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.files.source import DebeziumSource
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.debezium.transactions.progress import FileProgress
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with


def test_a_spool_that_its_engine_has_not_made_yet_holds_nothing(tmp_path: Path) -> None:
    """A new pipeline asks for its tables before the engine has started, and gets none."""
    place = EngineInput("host", "database", "user", str(tmp_path / "spool"))
    assert DebeziumSource(DebeziumSettings(place)).list_tables() == ()


def test_an_emptied_spool_is_reported_before_its_engine_starts(tmp_path: Path) -> None:
    """The engine would move the slot, and give the offsets of events that the lake has to new ones."""
    settings = EngineInput("host", "database", "user", str(tmp_path / "spool"))
    spool = Spool(tmp_path / "spool")
    with spool.open_writer(settings.identity()) as writer:
        file = writer.write(["", ""], 0)
    progress = {str(file): FileProgress("version", lines=2).to_text()}
    file.unlink()
    source = DebeziumSource(DebeziumSettings(settings))
    with pytest.raises(OffsetsLost, match=r"before number 2 of .* is empty: files were deleted"):
        source.plan(Lineage({}, 0), ReadRequest(1), lambda: progress)
    assert {"engine.lock", "spool.json"} == {path.name for path in spool.folder.iterdir()}


def test_a_replay_is_no_file_of_a_spool(tmp_path: Path) -> None:
    """A pipeline with an engine goes on after a replay, which has an entry in the read progress."""
    settings = EngineInput("host", "database", "user", str(tmp_path / "spool"))
    spool = Spool(tmp_path / "spool")
    with spool.open_writer(settings.identity()) as writer:
        file = writer.write([""], 0)
        progress = {str(file): FileProgress("version", lines=1).to_text(), replay_path(5): "5-0"}
        new = writer.write([""], 0)
        source = DebeziumSource(DebeziumSettings(settings))
        plan = source.plan(begin(1), ReadRequest(2), lambda: progress)
    assert [file.path for file in plan.inputs["files"]] == [str(file), str(new)]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Files of other writers are in an existing folder; a wrong path must not look empty."""
    source = DebeziumSource(DebeziumSettings(FilesInput(str(tmp_path / "nowhere"))))
    with pytest.raises(SourceNotFound, match="nowhere"):
        source.list_tables()


def test_a_table_after_many_changes_of_another_is_listed(tmp_path: Path) -> None:
    """Only the first change of each table is decoded."""
    other = envelope("c", after={"id": 1}, source={"table": "others"})
    values = [*[envelope("u", after={"id": 1})] * 9, other]
    (tmp_path / "1.jsonl").write_text("\n".join(line(value, {"id": 1}) for value in values))
    columns = {name: {"id": "bigint"} for name in ("public.orders", "public.others")}
    source = DebeziumSource(settings_with(input=FilesInput(str(tmp_path)), columns=columns))
    with patch.object(Decoder, "decode", autospec=True, side_effect=Decoder.decode) as decode:
        listed = source.list_tables()

    assert list(columns) == [table.name for table in listed]
    assert decode.call_count == len(columns)


@pytest.mark.parametrize(
    ("tables", "table", "expected"),
    [
        ((), "u", {"": "Of u."}),
        (("A[.]T",), "t", {"": "Of a."}),
        (("A[.]T",), "u", {"": ""}),
        (("a[.]t_.*",), "p", {"": "", "id": "Of p."}),
    ],
    ids=["all", "of this name", "not of this name", "partitions"],
)
def test_a_table_has_the_comments_of_captured_tables(
    tmp_path: Path, tables: tuple[str, ...], table: str, expected: dict[str, str]
) -> None:
    """Tables of other schemas may have its name; `b.p` has the partitions `a.t_1` and so on."""
    columns = [("b", "t", "id", "Of b."), ("b", "p", "id", "Of p.")]
    comments = [("a", "t", "", "Of a."), *columns, ("c", "u", "", "Of u.")]
    Spool(tmp_path).comments.write_text(json.dumps(comments))
    place = EngineInput("host", "database", "user", str(tmp_path), tables=tables)
    settings = DebeziumSettings(place, table_name="{table}", partitions={"a[.]t_.*": "b.p"})
    assert DebeziumSource(settings).comments(table) == expected


def test_of_tables_with_one_name_one_gives_the_comments(tmp_path: Path) -> None:
    """Comments of several captured tables are not mixed: those of the first schema count."""
    comments = [("b", "t", "", "Of b."), ("b", "t", "id", "Of b."), ("a", "t", "name", "Of a.")]
    Spool(tmp_path).comments.write_text(json.dumps(comments))
    place = EngineInput("host", "database", "user", str(tmp_path))
    assert DebeziumSource(DebeziumSettings(place, table_name="{table}")).comments("t") == {
        "": "",
        "name": "Of a.",
    }


@pytest.mark.parametrize("content", [b"[", b"{}", b'[["a", "t", ""]]', b'[["a", "t", "", 1]]', b"\xff", b"7"])
def test_damaged_comments_are_named(tmp_path: Path, content: bytes) -> None:
    """The error says which file is damaged, and what to do with it."""
    Spool(tmp_path).comments.write_bytes(content)
    place = EngineInput("host", "database", "user", str(tmp_path))
    with pytest.raises(SpoolUnusable, match=r"Delete the file.*comments\.json"):
        DebeziumSource(DebeziumSettings(place)).comments("t")
