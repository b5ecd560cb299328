"""What is read of a lake for the status page."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.dashboard import change_rates
from cdc_platform.dashboard.cut_history import load_cut_history
from cdc_platform.dashboard.facts import PipelineFacts, PipelineHistory, UnreadablePipeline, WatchedPipeline
from cdc_platform.dashboard.health import State, assess_health
from cdc_platform.dashboard.metrics import PipelineCollector
from cdc_platform.dashboard.page import PageOptions, PipelineView, write_page
from cdc_platform.dashboard.read_lanes import load_read_lanes
from cdc_platform.dashboard.time_span import TimeSpan
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.state.copies import COPY, COPY_BRANCH, ChunkBatch, CopyPlan, save_plans
from cdc_platform.lake.state.cuts import Cut, append_cut, newest_cut
from cdc_platform.lake.state.last_results import LastResult
from cdc_platform.model.base.names import FRESH
from cdc_platform.model.base.schemas import READ_PROGRESS_ROWS
from cdc_platform.model.base.stored_names import LOG, READ_PROGRESS
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.stream.unread import unread_path
from cdc_platform.model.stream.watermark_holders import StuckPartition
from cdc_platform.pipeline.on_demand.status import Status
from cdc_platform_tests.support.watched_lakes import ROWS, SECOND, WatchedLake
from cdc_platform_tests.yaml_files import write_defs

START = 1_800_000_000_000_000
CYCLES = 6
SILENT: Final[dict[str, object]] = {
    "lag_s": 61.0,
    "delivers_events": True,
    "polled_micros": START - 59 * SECOND,
}
"""A source of events that had nothing for longer than the bound of the page, and was polled since."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> WatchedPipeline:
    """A pipeline with a cycle each ten seconds, whose change log has ten changes a cycle."""
    defs = write_defs(tmp_path_factory.mktemp("bank"))
    lake = WatchedLake.begin(defs, START)
    for number in range(1, CYCLES + 1):
        lake.run_cycle(START + number * 10 * SECOND, {"accounts": 7, "transfers": 3})
    return WatchedPipeline.of(load_settings(defs), late_after_s=60)


def facts_of(watched: WatchedPipeline) -> PipelineFacts:
    """Return the facts of a pipeline that can be read."""
    facts = watched.read_facts()
    assert isinstance(facts, PipelineFacts)
    return facts


def test_changes_a_second(watched: WatchedPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are counted by cycle; of very many, those of each file are spread over its cycles."""
    lake, end = watched.pipeline.lake, START + CYCLES * 10 * SECOND
    span = TimeSpan(START + 10 * SECOND, end)
    cuts = load_cut_history(lake, TimeSpan(START, end), newest_cut(lake))
    log = lake.system_table(LOG)
    counted = change_rates.load_change_rates(log, cuts, span)
    assert counted.is_exact
    assert np.allclose(counted.per_second, 1.0)
    monkeypatch.setattr(change_rates, "COUNTED_ROWS", 1)
    spread = change_rates.load_change_rates(log, cuts, span)
    assert not spread.is_exact
    assert np.allclose(counted.per_second, spread.per_second)


def test_a_span_has_its_own_cuts(watched: WatchedPipeline) -> None:
    """Only cuts of the span are read, and the previous one: its lag extends into the span."""
    lake = watched.pipeline.lake
    newest = newest_cut(lake)
    last = load_cut_history(lake, TimeSpan(START + 45 * SECOND, START + 100 * SECOND), newest)
    assert list(last.cycle) == [4, 5, 6]
    later = load_cut_history(lake, TimeSpan(START + 1000 * SECOND, START + 2000 * SECOND), newest)
    assert list(later.cycle) == [CYCLES]


def test_recent_changes_are_those_of_the_logs_snapshots(watched: WatchedPipeline) -> None:
    """The last minutes are known by table without reading data."""
    recent = facts_of(watched).recent
    assert recent.by_table == {"accounts": 7 * CYCLES, "transfers": 3 * CYCLES}


def test_compaction_is_no_change(tmp_path: Path) -> None:
    """The last change of a table is the newest cycle that committed to it; maintenance does not count."""
    defs = write_defs(tmp_path)
    lake = WatchedLake.begin(defs, START)
    lake.run_cycle(START + SECOND, {"accounts": 2})
    table = lake.pipeline.lake.table("accounts")
    assert table is not None
    changed = head(table)
    table.append(ROWS.empty_table())
    state = facts_of(WatchedPipeline.of(load_settings(defs), late_after_s=60)).status.tables["accounts"]
    assert changed is not None
    assert (changed.timestamp_ms * 1000, 2) == (state.changed_micros, state.rows)


def test_reading_makes_nothing(watched: WatchedPipeline, tmp_path: Path) -> None:
    """A pipeline that has never run is reported, and its lake is not made."""
    facts = WatchedPipeline.of(load_settings(write_defs(tmp_path)), late_after_s=60).read_facts()
    assert isinstance(facts, UnreadablePipeline)
    assert "There is no lake" in facts.problem
    assert facts.health.word is State.UNKNOWN
    assert not (tmp_path / "lake").exists()
    assert isinstance(watched.read_history(facts_of(watched), hours=1), PipelineHistory)


def test_files_are_shown_by_folder(tmp_path: Path) -> None:
    """What cycles have read of files and topics is counted by place; failed reads are not."""
    lake = Lake(LakeSettings(str(tmp_path / "lake")), "files", delivers_events=True)
    paths = (
        "users/2026/11/26/1.avro",
        "users/2026/11/26/2.avro",
        "orders/1.avro",
        unread_path("orders/2.avro"),
    )
    for number in (1, 2):
        append_cut(lake, Cut(number, START, number, {}, START + number * SECOND))
        rows = [{"cycle": number, "path": path, "version": "1"} for path in paths]
        lake.system_table(READ_PROGRESS).append(pa.Table.from_pylist(rows, READ_PROGRESS_ROWS))
    span = TimeSpan(START, START + 60 * SECOND)
    lanes = load_read_lanes(lake, load_cut_history(lake, span, newest_cut(lake)), span)
    assert [(lane.name, lane.reads) for lane in lanes.lanes] == [("orders", 2), ("users", 4)]


def test_a_copy_shows_its_rate(tmp_path: Path) -> None:
    """While a table is copied, its chunks and rows, the rows a second and the time left are known."""
    defs = write_defs(tmp_path)
    lake = WatchedLake.begin(defs, START).pipeline.lake
    save_plans(lake, [CopyPlan("accounts", 1, START, START, "{}", ("a", "b", "c", "d"))])
    table = lake.catalog.create_table("bank.accounts", ROWS)
    table.append(ROWS.empty_table())
    base = table.metadata.current_snapshot_id or -1
    table.manage_snapshots().create_branch(base, COPY_BRANCH).commit()
    batch = ChunkBatch(1, base, frozenset({0}), own=1, begun_micros=clock_micros() - 10 * SECOND)
    rows = pa.table({"id": range(50), "balance": [0] * 50}, ROWS)
    table.append(rows, snapshot_properties={COPY: batch.to_text()}, branch=COPY_BRANCH)
    facts = facts_of(WatchedPipeline.of(load_settings(defs), late_after_s=60))
    ((table_name, copy),) = facts.status.copies.items()
    assert (table_name, copy.chunks, copy.copied_chunks, copy.copied_rows) == ("accounts", 4, 1, 50)
    assert pytest.approx(5, rel=0.5) == copy.rows_per_s
    assert pytest.approx(30, rel=0.5) == copy.left_s
    assert facts.health.word is State.COPYING
    assert "initial copy of accounts" in facts.health.reasons


def failed(name: str, *, is_warning: bool) -> LastResult:
    """Return a check that has failed."""
    return LastResult(name, "bank__cdc/cut", passed=False, is_warning=is_warning, at_s=0, summary="")


def test_a_check_is_one_series(watched: WatchedPipeline) -> None:
    """The labels of a check's metrics are the same whether it fails or warns."""
    facts = facts_of(watched)
    series = {
        tuple(sample.labels.items())
        for is_warning in (True, False)
        for family in PipelineCollector(
            {
                "bank": replace(
                    facts, status=replace(facts.status, checks=(failed("fresh", is_warning=is_warning),))
                )
            }
        ).collect()
        for sample in family.samples
        if sample.name == "cdc_platform_check_passed"
    }
    assert {(("pipeline", "bank"), ("check", "fresh"), ("asset", "bank__cdc/cut"))} == series


@pytest.mark.parametrize(
    ("changes", "checks", "word", "reasons"),
    [
        ({"lag_s": 59.0}, [], State.HEALTHY, 0),
        # Warnings are shown, and are not a reason to get up.
        ({"lag_s": 59.0}, [failed("schema_changes", is_warning=True)], State.HEALTHY, 0),
        ({"lag_s": 61.0}, [], State.LATE, 1),
        # Files and topics that are silent are not late, as long as somebody polls them.
        (SILENT, [], State.HEALTHY, 0),
        (SILENT | {"polled_micros": START - 181 * SECOND}, [], State.LATE, 1),
        # They are where something waits; a warning that is within the bound of the page is none.
        (SILENT, [failed("fresh", is_warning=True)], State.LATE, 1),
        (SILENT | {"lag_s": 59.0}, [failed("fresh", is_warning=True)], State.HEALTHY, 0),
        (SILENT, [failed("fresh", is_warning=False)], State.FAILING, 1),
        (
            {"lag_s": 61.0, "quarantined": 2},
            [failed("keys_unique", is_warning=False)],
            State.FAILING,
            3,
        ),
        ({"lag_s": 1.0, "quarantined": 2}, [], State.INCOMPLETE, 1),
        ({"lag_s": None, "cut": None}, [], State.STARTING, 1),
    ],
)
def test_the_gravest_reason_is_the_word(
    watched: WatchedPipeline,
    changes: Mapping[str, object],
    checks: list[LastResult],
    word: State,
    reasons: int,
) -> None:
    """A failed check comes before lateness, and both before records in quarantine; all reasons are kept."""
    health = assess_health(
        status_of(watched, **changes, checks=tuple(checks)), now_micros=START, late_after_s=60
    )
    assert (word, reasons) == (health.word, len(health.reasons))


def status_of(watched: WatchedPipeline, **changes: object) -> Status:
    """Return the status of a pipeline with other values in it."""
    return replace(facts_of(watched).status, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lag_s", "checks", "note"),
    [
        (30.0, [], "everything that was read is published"),
        (7200.0, [], "silent for 2 h; polled 4 min ago"),
        # The check has polled the source, too.
        (7200.0, [1_000, 700], "silent for 2 h; polled 2 min ago"),
    ],
)
def test_silence_is_reported(watched: WatchedPipeline, lag_s: float, checks: list[float], note: str) -> None:
    """If files or topics are silent, the page shows for how long, and when they were last polled."""
    results = tuple(LastResult("fresh", "bank/t", True, True, at_s, "") for at_s in checks)
    silent = status_of(watched, lag_s=lag_s, delivers_events=True, polled_micros=880 * SECOND, checks=results)
    assert note == assess_health(silent, now_micros=1_120 * SECOND, late_after_s=300).note


@pytest.mark.parametrize(
    ("read_s", "stuck", "is_advised"),
    [(301, (), True), (299, (), False), (301, (StuckPartition("p", START - 301 * SECOND, 301.0),), False)],
)
def test_a_late_change_stream_that_nothing_reads_says_so(
    watched: WatchedPipeline, read_s: int, stuck: tuple[StuckPartition, ...], *, is_advised: bool
) -> None:
    """Then it is not the merge that is slow, but nothing runs; a stuck partition has a reason of its own."""
    read_micros = START - read_s * SECOND
    late = status_of(watched, lag_s=400.0, watermark_micros=read_micros, stuck_partitions=stuck)
    advice = (
        "the source was last read up to 5 min 1 s ago; "
        "if nothing runs, start `sync --continuous` or the sensor"
    )
    assert is_advised == (advice in assess_health(late, now_micros=START, late_after_s=300).reasons)


def test_a_reason_has_the_age_of_its_check(watched: WatchedPipeline) -> None:
    """The lag in the result of a check is that of its time, which may be an hour ago."""
    results = (LastResult("fresh", "bank/t", False, True, 1_000, "6 min behind."),)
    silent = status_of(
        watched, lag_s=900.0, delivers_events=True, polled_micros=1_000 * SECOND, checks=results
    )
    expected = ("silent for 15 min, and check fresh on bank/t, 2 min ago: 6 min behind.",)
    assert expected == assess_health(silent, now_micros=1_120 * SECOND, late_after_s=300).reasons


def test_a_failure_names_its_tables(watched: WatchedPipeline) -> None:
    """A check that fails on several tables is one reason, which counts them and names the first ones."""
    checks = [
        LastResult("keys_unique", f"shop/t{number}", number >= 5, is_warning=False, at_s=0, summary="")
        for number in range(20)
    ]
    status = status_of(watched, lag_s=1.0, checks=(failed("keys_unique", is_warning=False), *checks))
    health = assess_health(status, now_micros=START, late_after_s=60)
    assert health.reasons == (
        "check keys_unique failed on bank__cdc/cut",
        "check keys_unique failed on 5 of 20 tables: shop/t0, shop/t1, shop/t2 and 2 more",
    )


def test_a_backlog_is_a_lag(watched: WatchedPipeline) -> None:
    """Files and topics of which more waits are behind, and late beyond the bound of the page."""
    facts = facts_of(watched)
    left = {"delivers_events": True, "left_since_micros": facts.now_micros - 61 * SECOND}
    status = status_of(watched, lag_s=61.0, **left)
    health = assess_health(status, facts.now_micros, late_after_s=60)
    assert health.reasons == ("the newest cut is 1 min 1 s behind; late after 1 min",)
    view = PipelineView("bank", replace(facts, status=status), None)
    assert "more waits to be read" in write_page([view], facts.now_micros, PageOptions(hours=1))


@pytest.mark.parametrize(
    ("delivers_events", "passed", "shown"),
    [
        (False, None, r"\d.* (s|min|h|d)"),
        (True, None, "-"),
        (True, True, '<span class="ok">✓</span> 1 min ago'),
        (True, False, '<span class="warn">▲</span> 1 min ago'),
    ],
)
def test_a_silent_table_has_the_result_of_its_check(
    watched: WatchedPipeline, delivers_events: bool, passed: bool | None, shown: str
) -> None:
    """The age of the cut is that of the source's last change there, so it says nothing of the table."""
    facts = facts_of(watched)
    history = watched.read_history(facts, hours=1)
    at_s = facts.now_micros / 1e6 - 60
    checks = () if passed is None else (LastResult(FRESH, "bank/accounts", passed, True, at_s, ""),)
    facts = replace(facts, status=replace(facts.status, delivers_events=delivers_events, checks=checks))
    text = write_page([PipelineView("bank", facts, history)], facts.now_micros, PageOptions(hours=1))
    first, *_ = re.findall('data-label="Fresh">(.*?)</td>', text)
    assert re.fullmatch(shown, first)
