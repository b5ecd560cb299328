"""`cdc-platform quarantine` as people and scripts use it."""

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.errors import CutNotFound
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.quarantine import untaken_records
from cdc_platform.lake.state.read_progress import load_read_progress, waiting_texts
from cdc_platform.model.base.stored_names import LOG, QUARANTINE
from cdc_platform.model.stream.files import READ_AGAIN
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.read import open_tables
from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.lake.quarantine_entries import note_read, quarantine, quarantine_entry
from cdc_platform_tests.yaml_files import write_defs

DEFS = """\
type: cdc_platform.components.datastream.DatastreamPipeline
attributes:
  name: shop
  lake: {path: lake}
  source: {path: stream}
"""


@pytest.fixture
def defs(tmp_path: Path) -> Path:
    """The file of a pipeline with three files: one is there, one is gone, and so is one that was corrupt."""
    stream = tmp_path / "stream"
    stream.mkdir()
    (stream / "there.jsonl").touch()
    file = tmp_path / "defs.yaml"
    file.write_text(DEFS, encoding="utf-8")
    lake = lake_of(file)
    corrupt: dict[str, Any] = {
        "record": '{"event":{"fault":"cut","text":"x"}}',
        "reason": "The file is corrupt",
    }
    quarantine(
        lake,
        1,
        quarantine_entry("a", f"{stream}/there.jsonl"),
        quarantine_entry("b", f"{stream}/gone.jsonl"),
        quarantine_entry("c", f"{stream}/corrupt.avro", table_name=None, **corrupt),
    )
    note_read(lake, 1, *(f"{stream}/{name}" for name in ("there.jsonl", "gone.jsonl", "corrupt.avro")))
    return file


def lake_of(defs: Path) -> Lake:
    """Return the lake of the pipeline."""
    return open_pipeline(load_settings(defs)).lake


def test_records_are_listed(defs: Path) -> None:
    """Each with its reason, narrowed by the options; JSON has all facts."""
    code, output, _ = run("quarantine", "list", defs)
    assert (code, output.count("  open "), "\n2  The event has no ordering key" in output) == (0, 3, True)
    _, output, _ = run("quarantine", "list", defs, "--reason", "corrupt", "--cycle", "1", "--json")
    (record,) = json.loads(output)
    assert (record["record"], record["table"], record["replayed"]) == ("c", None, None)
    assert run("quarantine", "list", defs, "--table", "orders")[1].strip() == "no record found in quarantine"


def test_a_record_is_shown_whole(defs: Path) -> None:
    """Its content is there as it came; one that is not there is reported, with where to look."""
    _, output, _ = run("quarantine", "show", defs, "a", "--json")
    assert json.loads(output)[0]["record"]["event"]["position"] == 0
    assert "no ordering key" in run("quarantine", "show", defs, "a")[1]
    code, _, errors = run("quarantine", "show", defs, "z")
    assert (code, "quarantine list" in errors) == (1, True)


@pytest.mark.parametrize("command", ["cuts DEFS", "explain DEFS users 1"])
def test_where_all_is_in_quarantine_no_cycle_is_asked_for(defs: Path, command: str) -> None:
    """Users who find no cut and no table learn why, and where to look, and are not sent to run a cycle."""
    _, output, errors = run(*(str(defs) if word == "DEFS" else word for word in command.split()))
    text = "all records read so far are in quarantine (3); `cdc-platform quarantine list` shows"
    assert text in output + errors
    with pytest.raises(CutNotFound, match="a cut yet; all records read so far are in quarantine"):
        open_tables(defs).at()


def test_a_replay_is_asked_for(defs: Path) -> None:
    """A file that is there is read again; of one that is gone texts are left, of a corrupt one nothing."""
    code, output, _ = run("quarantine", "replay", defs)
    assert code == 0
    assert "1 record of 1 file: the next cycle reads the files again" in output
    assert "1 record: a later cycle decodes the stored text again" in output
    assert "corrupt.avro is gone, and nothing of it was kept" in output
    lake = lake_of(defs)
    assert [version for path, version in load_read_progress(lake).items() if "there" in path] == [READ_AGAIN]
    waiting = waiting_texts(lake)
    assert waiting is not None
    assert [record.name for record in waiting[1]] == ["b"]
    assert "quarantine  1 open" in run("status", defs)[1]
    assert run("quarantine", "list", defs, "--all")[1].count("  replayed ") == 2
    # Nothing has been read since: what waits for its file still does, and the rest is as it was.
    again = json.loads(run("quarantine", "replay", defs, "--json")[1])
    assert (again["from_texts"], again["unreadable"]) == ([], ["c"])
    assert [version for path, version in load_read_progress(lake).items() if "there" in path] == [READ_AGAIN]


def test_a_file_that_goes_after_it_was_asked_for(defs: Path) -> None:
    """Asked for again, its records are judged by their texts."""
    run("quarantine", "replay", defs, "--record", "a")
    (defs.parent / "stream" / "there.jsonl").unlink()
    again = json.loads(run("quarantine", "replay", defs, "--record", "a", "--json")[1])
    assert (again["from_files"], again["from_texts"]) == ([], ["a"])
    assert READ_AGAIN not in load_read_progress(lake_of(defs)).values()


def test_options_that_match_no_record_say_how_many_there_are(defs: Path) -> None:
    """A misspelled table does not look like an empty quarantine."""
    open_records = len(json.loads(run("quarantine", "list", defs, "--json")[1]))
    output = run("quarantine", "replay", defs, "--table", "custmers")[1]
    assert f"nothing to replay: the options match none of {open_records} open records" in output
    assert f"`cdc-platform quarantine list {defs}`" in output


def test_transactions_of_a_change_stream_are_replayed_whole(tmp_path: Path) -> None:
    """One record brings its transaction; the log has not judged them before the next cycle."""
    file = begin(write_defs(tmp_path))
    lake = lake_of(file)
    both: dict[str, Any] = {"transaction_id": "t"}
    quarantine(
        lake, 1, quarantine_entry("a", **both), quarantine_entry("b", **both), quarantine_entry("c", None)
    )
    outcome = json.loads(run("quarantine", "replay", file, "--record", "a", "--json")[1])
    assert outcome["from_records"] == ["a", "b"]
    untaken = untaken_records(lake, lake.system_table(QUARANTINE), lake.system_table(LOG))
    assert [record.name for record in untaken] == ["a", "b"]
    assert "replay      0 of 2 records" in run("status", file)[1]
    assert "1 record: the next cycle reads whole transactions again" in run("quarantine", "replay", file)[1]
    assert run("quarantine", "replay", file)[1].strip() == "nothing to replay"
