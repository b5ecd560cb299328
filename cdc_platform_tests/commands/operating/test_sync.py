"""`cdc-platform sync`: how it begins and ends, and the line of a cycle."""

import re
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.commands.operating.sync import describe_cycle
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.cycle import CycleOutcome
from cdc_platform.pipeline.ordering.order import OrderOutcome
from cdc_platform.pipeline.reading.read import ReadOutcome
from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.yaml_files import bank_attributes, write_defs, write_two

START = 1_800_000_000_000_000


def test_an_unreachable_source_ends_sync_before_spark_starts(tmp_path: Path) -> None:
    """`sync` asks the source first, so that a wrong address shows at once."""
    code, _, errors = run("sync", write_defs(tmp_path))
    assert code == 1
    assert re.search("^SourceUnreachable: ", errors, re.MULTILINE)
    assert "Starting Spark" not in errors


def test_a_pipeline_that_fails_stops_no_other(tmp_path: Path) -> None:
    """Each one is tried and each error shown, and the exit code is 1."""
    code, output, errors = run("sync", write_two(tmp_path))
    assert (code, output) == (1, "pipeline bank\npipeline shop\n")
    assert len(re.findall("^SourceUnreachable: ", errors, re.MULTILINE)) == 2


def test_sync_ends_in_one_way_only(tmp_path: Path) -> None:
    """Two ways to end are a usage error, with exit code 2."""
    code, _, errors = run("sync", write_defs(tmp_path), "--cycles", "1", "--continuous")
    assert code == 2
    assert "Choose one" in errors


@pytest.mark.parametrize(("turn", "number"), [(None, "7"), ((1, 2), "7 (1 of 2)")])
def test_a_cycle_is_one_line(turn: tuple[int, int] | None, number: str) -> None:
    """It has number, watermark, lag, records, changes, quarantine, cut and seconds; the turn where asked."""
    read = ReadOutcome(
        7, (), {RecordKind.DATA_CHANGE: 4040, RecordKind.HEARTBEAT: 2}, True, START + 2_000_000, START
    )
    cut = Cut(3, START, 7, {}, START + 2_500_000)
    outcome = CycleOutcome(read, OrderOutcome(7, START, 5050, 20, 4), (), cut, {"read": 1.0, "merge": 0.52})
    line = " ".join(describe_cycle(outcome, 6464, turn).split())
    assert line == (
        f"cycle {number} watermark 2027-01-15T08:00:00.000000Z lag 2.5 s records 4,042 changes 5,050 "
        "quarantine 4 new, 6,464 open cut 3 1.5 s"
    )


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"spark": {"driver_memory": "3g"}}, "spark.driver_memory"),
        (
            {"lake": {"path": "other"}, "spark": {"driver_memory": "3g", "class_archive": False}},
            "spark.driver_memory, spark.class_archive",
        ),
    ],
)
@pytest.mark.parametrize("command", ["sync", "check", "maintain"])
def test_pipelines_of_different_sparks_are_refused_before_one_runs(
    tmp_path: Path, command: str, changes: dict[str, dict[str, Any]], part: str
) -> None:
    """Every setting that differs is named, nothing is asked of a source, and `--name` is the way out."""
    defs = write_two(tmp_path, bank_attributes(name="shop", **changes))
    code, output, errors = run(command, defs)
    assert (code, output) == (1, "")
    assert errors.startswith(f"SettingError: Setting `{defs}: {part}` differs between `bank` and `shop`")
    assert "choose one with `--name`" in errors
    assert [defs] == list(tmp_path.iterdir())
