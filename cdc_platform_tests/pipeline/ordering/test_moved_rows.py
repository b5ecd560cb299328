"""Rows whose keys change in large windows: their values are completed before the window is ordered."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import STATS
from cdc_platform.model.base.stored_names import CYCLE, LOG
from cdc_platform.pipeline.completing import completion
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.ordering import events, log_commit, order
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.spark.log import event_order
from cdc_platform_tests.sources.debezium.cycles import append
from cdc_platform_tests.sources.debezium.written_events import TABLE, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.debezium.connector import Connector
from cdc_platform_tests.support.pipelines import log_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

UNLIKE: Final = {"ordinal", "commit_timestamp", "partition_token"}
"""Columns of the log whose values depend on the clock or on the number of tasks."""
Outcome = tuple[list[dict[str, Any]], list[dict[str, Any]], Counter[int], dict[str | None, str | None]]
UNSENT: Final[dict[str, Any]] = {"big": DEFAULT_PLACEHOLDER, "xs": [1]}


def write_changes(connector: Connector, dice: random.Random) -> None:
    """Write transactions that insert, update, move and delete rows, half without their large value."""
    connector.begin()
    for key in range(6):
        connector.insert(key, big=f"first {key}", xs=[1])
    connector.end()
    keys, free = [*range(6)], [*range(6, 12)]
    for n in range(40):
        values = dice.choice([UNSENT, {"big": f"large {n}", "xs": [n]}, UNSENT, {"big": None, "xs": [n]}])
        place = dice.randrange(len(keys))
        connector.begin()
        if n % 3 == 0:
            new = free.pop(dice.randrange(len(free)))
            connector.move(keys[place], new, n=n, **values)
            free.append(keys[place])
            keys[place] = new
        elif n % 7 == 1:
            connector.delete(keys[place])
            connector.insert(keys[place], n, big=f"new {n}", xs=[n])
        else:
            connector.update(keys[place], n=n, **values)
        connector.end()


def portions_of(*, are_whole: bool) -> Iterator[Sequence[str]]:
    """Yield the lines of each cycle, whole transactions or parts of them without transaction metadata."""
    dice, connector = random.Random(20261129), Connector()  # noqa: S311  a test's input, not a secret
    write_changes(connector, dice)
    lines = connector.lines
    if not are_whole:
        lines = [text for text in lines if "s.transaction" not in text]
        # The second half of a key change begins a cycle.
        start = next(place for place, text in enumerate(lines[50:], 50) if "oldkey" in text)
    else:
        start = next(place for place, text in enumerate(lines[80:], 80) if '"BEGIN"' in text)
    yield from (lines[:start], lines[start:])


def sync_portions(name: str, lake: LakeSettings, folder: Path, spark: "SparkSession") -> Pipeline:
    """Return a pipeline that has read all portions, with or without transaction metadata as its name says."""
    are_whole = name.startswith("whole")
    source = settings_with(input=FilesInput(str(folder)), has_transaction_topic=are_whole)
    pipeline = open_pipeline(PipelineSettings(name, source, lake))
    folder.mkdir()
    for portion in portions_of(are_whole=are_whole):
        append(folder / "events.jsonl", portion)
        pipeline = sync(pipeline, spark)
    return pipeline


def outcome_of(pipeline: Pipeline) -> Outcome:
    """Return the log, the table, and the counts and the number of times of each commit to the log."""
    log = [{name: row[name] for name in row.keys() - UNLIKE} for row in log_rows(pipeline)]
    rows = sorted(rows_of(pipeline, TABLE), key=lambda row: int(row["id"]))
    times = Counter(
        cycle for cycle, _ in {(row["cycle"], row["commit_timestamp"]) for row in log_rows(pipeline)}
    )
    counts = {
        snapshot.summary[CYCLE]: snapshot.summary[STATS]
        for snapshot in pipeline.lake.system_table(LOG).snapshots()
        if snapshot.summary is not None and snapshot.summary[STATS]
    }
    return log, rows, times, counts


@pytest.fixture
def large_windows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let tasks order windows of any size, and return the cycles in which all changes were ordered first."""
    cycles = list[int]()
    finalise = events.Events.finalise

    def note(*arguments: Any) -> Any:
        cycles.append(arguments[2].cycle)
        return finalise(*arguments)

    monkeypatch.setattr(events.Events, "finalise", note)
    monkeypatch.setattr(log_commit, "MAX_BYTES", -1)
    for module in (order, events, event_order):
        monkeypatch.setattr(module, "SINGLE_TASK_RECORDS", 0)
    return cycles


@pytest.fixture(scope="module")
def expected(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    """Provide the outcomes of small windows, with whole transactions and with parts of them."""
    folder = tmp_path_factory.mktemp("small")
    return {
        name: outcome_of(sync_portions(f"{name}_few", session_lake, folder / name, spark))
        for name in ("whole", "parted")
    }


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("transactions", ["whole", "parted"])
def test_a_large_window_is_completed_as_a_small_one(
    spark: "SparkSession",
    session_lake: LakeSettings,
    tmp_path: Path,
    expected: dict[str, Outcome],
    large_windows: list[int],
    transactions: str,
) -> None:
    """The log, the table and the counts are equal, in this process and by tasks.

    Only if there are many moved rows, all changes are ordered first.
    """
    for limit in ("", "MAX_STORED_BYTES", "MAX_ROWS"):
        with pytest.MonkeyPatch.context() as patch:
            if limit:
                patch.setattr(completion, limit, 0)
            name = f"{transactions}_many{limit}".lower()
            many = sync_portions(name, session_lake, tmp_path / name, spark)
        assert expected[transactions] == outcome_of(many)
        assert (limit == "MAX_ROWS") == bool(large_windows)
    assert failed_checks(many, spark) == {}
