"""`cdc-platform sync`: how it begins and ends, and the line of a tick."""

from pathlib import Path

from cdc_platform.commands.sync import describe_tick
from cdc_platform.lake.cuts import Cut
from cdc_platform.model.records import RecordKind
from cdc_platform.pipeline.order import OrderOutcome
from cdc_platform.pipeline.read import ReadOutcome
from cdc_platform.pipeline.tick import TickOutcome
from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.yaml_files import write_defs

START = 1_800_000_000_000_000


def test_an_unreachable_source_ends_sync_before_spark_starts(tmp_path: Path) -> None:
    """`sync` asks the source first, so that a wrong address shows at once."""
    code, _, errors = run("sync", write_defs(tmp_path))
    assert code == 1
    assert errors.startswith("SourceUnreachable: ")
    assert "Starting Spark" not in errors


def test_sync_ends_in_one_way_only(tmp_path: Path) -> None:
    """Two ways to end are a usage error, with exit code 2."""
    code, _, errors = run("sync", write_defs(tmp_path), "--ticks", "1", "--continuous")
    assert code == 2
    assert "Choose one" in errors


def test_a_tick_is_one_line() -> None:
    """The line of a tick has its number, watermark, lag, records, changes, cut and seconds."""
    read = ReadOutcome(
        7, (), {RecordKind.DATA_CHANGE: 40, RecordKind.HEARTBEAT: 2}, True, START + 2_500_000, START
    )
    cut = Cut(3, START, 7, {}, START)
    outcome = TickOutcome(read, OrderOutcome(7, START, 50, 20, 0), (), cut, {"read": 1.0, "merge": 0.52})
    assert describe_tick(outcome).split() == (
        [
            "tick",
            "7",
            "watermark",
            "2027-01-15T08:00:00.000000Z",
            "lag",
            "2.5",
            "s",
            "records",
            "42",
            "changes",
            "50",
            "cut",
            "3",
            "1.5",
            "s",
        ]
    )
