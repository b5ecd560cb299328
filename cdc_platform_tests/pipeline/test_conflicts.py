"""Two runs of one pipeline at once: one commits, the other one changes nothing and says so."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from pyspark.sql import functions as F

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits import branches
from cdc_platform.lake.commits.commits import BRANCH, head, read_mark
from cdc_platform.lake.state import lost_commits
from cdc_platform.lake.state.cuts import Cut, list_cuts
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.model.base.stored_names import CUT, LOG, RAW
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.pipeline.histories import history_plan
from cdc_platform.pipeline.merging import build, merge, next_versions
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering import change_streams, log_commit
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing import publication
from cdc_platform.pipeline.publishing.maintain import MaintenanceOutcome, maintain_lake
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform.pipeline.reading.read import read_windows
from cdc_platform.pipeline.schema import table_ddl
from cdc_platform.pipeline.versions.branch import Attempt, finished_head, load_table, reset_branch
from cdc_platform.spark.tables.merge import append_inserted
from cdc_platform.spark.tables.net_changes import ACTION, APPEND
from cdc_platform_tests.pipeline.bank import (
    SECOND,
    balances,
    bank_pipeline,
    expected_balances,
    feed_cycle,
    feed_next,
    opening,
    transfer,
)
from cdc_platform_tests.support.crash_points.scenarios import IMPATIENT
from cdc_platform_tests.support.cycles import failed_checks
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import (
    START,
    feed,
    found_table,
    log_rows,
    merging_by_spark,
    reading_by_spark,
    run_steps,
    source_of,
    window_row,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def unchanged(pipeline: Pipeline) -> Pipeline:
    """Let the pipeline commit and merge as it does, what is small without Spark."""
    return pipeline


@pytest.fixture(scope="module")
def bank(spark: "SparkSession", session_lake: LakeSettings) -> Pipeline:
    """The bank after its first cycle; each test continues from the state of the previous one."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    return pipeline


def test_two_reads_cannot_both_commit_a_cycle(spark: "SparkSession", session_lake: LakeSettings) -> None:
    """The second of two runs that planned on the same lineage fails, and its records are read once.

    Spark reads the first cycle, and this process the second one.
    """
    pipeline = bank_pipeline(session_lake)
    source = source_of(pipeline)
    for number, reader in enumerate((reading_by_spark(pipeline), pipeline), start=1):
        source.now_micros += SECOND
        rivals: list[Callable[[], object]] = [partial(read_windows, reader, spark)]
        source.answer = partial(_answer_after, rivals)
        with pytest.raises(CommitConflict, match=rf"Cycle {number} of .* was not committed"):
            read_windows(reader, spark)
        assert pipeline.lake.system_table(RAW).scan().to_arrow().num_rows == 2 * number
    run_steps(pipeline, spark)
    assert balances(pipeline) == {1: 100, 2: 100}


def _answer_after(
    rivals: list[Callable[[], object]], cycle: int, windows: Sequence[ReadWindow]
) -> list[RawRow]:
    if rivals:
        rivals.pop()()
    opened = opening(cycle, 100, windows[0].end_inclusive_micros)
    rows = [opened, *(window_row(planned, records=1) for planned in windows)]
    return [{**row, "cycle": cycle} for row in rows]


@pytest.mark.parametrize(
    ("orderer", "counting"), [(reading_by_spark, "measure"), (unchanged, "measure_rows")]
)
def test_two_runs_cannot_both_order_the_same_records(
    spark: "SparkSession",
    bank: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    orderer: Callable[[Pipeline], Pipeline],
    counting: str,
) -> None:
    """The log takes a window once, though the rival has ordered a later cycle together with it."""
    pipeline = orderer(bank)
    order_changes(pipeline, spark)
    feed_next(pipeline)

    def rival() -> None:
        feed_next(pipeline)
        order_changes(pipeline, spark)

    interrupt_once(monkeypatch, change_streams, counting, rival)
    with pytest.raises(CommitConflict):
        order_changes(pipeline, spark)
    records = [(row["record_id"], row["mod_ordinal"]) for row in log_rows(pipeline)]
    assert sorted(set(records)) == sorted(records)


def test_an_idle_order_cannot_take_the_log_back(
    spark: "SparkSession", bank: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that found nothing does not commit its watermark on top of a later one."""
    number = feed_next(bank)
    order_changes(bank, spark)
    feed(bank, START + (number + 1) * SECOND)

    def rival() -> None:
        order_changes(bank, spark)
        feed_cycle(bank, number + 2)
        order_changes(bank, spark)

    interrupt_once(monkeypatch, log_commit, "_properties", rival)
    with pytest.raises(CommitConflict):
        order_changes(bank, spark)
    mark = read_mark(bank.lake.system_table(LOG))
    assert (number + 2, START + (number + 3) * SECOND - 1) == (mark.cycle, mark.position_micros)


@pytest.mark.parametrize(
    ("step", "merger"),
    [
        *((step, merging_by_spark) for step in ("append_inserted", "merge_existing", "verify_attempt")),
        ("commit_merge", unchanged),
    ],
)
def test_two_merges_cannot_mix_on_the_branch(
    spark: "SparkSession",
    bank: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    merger: Callable[[Pipeline], Pipeline],
) -> None:
    """A run whose branch was taken over publishes nothing; what is published next is right."""
    pipeline = merger(bank)
    run_steps(pipeline, spark)
    number = read_mark(pipeline.lake.system_table(RAW)).cycle + 1
    begun, changed = START + number * SECOND, {1: number, 2: 200 - number}
    records = [opening(10 * number, 100, begun), *transfer(changed, begun + 1)]
    expected = {**balances(pipeline), **changed, 10 * number: 100}
    feed(pipeline, begun + SECOND - 1, *records)
    order_changes(pipeline, spark)

    def rival() -> None:
        # Like any second run, it finds the branch unfinished and starts over.
        monkeypatch.setattr(next_versions, "finished_head", lambda *_args: None)
        merge_tables(pipeline, spark, [pipeline.table("accounts")])
        monkeypatch.setattr(next_versions, "finished_head", finished_head)

    interrupt_once(monkeypatch, build, step, rival)
    with pytest.raises(CommitConflict, match=r"Another run (merged `accounts`|has changed)"):
        merge_tables(pipeline, spark, [pipeline.table("accounts")])
    run_steps(pipeline, spark)
    assert expected == balances(pipeline)


@pytest.fixture(scope="module")
def opened(spark: "SparkSession", session_lake: LakeSettings) -> Pipeline:
    """The bank with a table of accounts that has no change yet."""
    pipeline = bank_pipeline(session_lake)
    table_ddl.ensure_table(pipeline, spark, pipeline.table("accounts"))
    return pipeline


@pytest.mark.parametrize(
    ("commits", "is_finished"),
    [
        ([("a", None), ("a", 2)], True),  # one attempt, whole
        ([("a", 1)], True),  # one attempt of one commit
        ([("a", None)], False),  # the first half of one
        ([("a", 2)], False),  # the second half of one: a rival has reset the branch between
        ([("a", None), ("b", 2)], False),  # halves of two attempts
        ([("a", None), ("b", None), ("a", 2)], False),  # interleaved
        ([("a", 1), ("b", 1)], False),  # one on the other: applied twice
        ([], False),  # nothing
    ],
)
def test_only_one_whole_attempt_upon_its_base_is_finished(
    spark: "SparkSession",
    opened: Pipeline,
    commits: list[tuple[str, int | None]],
    is_finished: bool,
) -> None:
    """Of the commits of two runs on a branch, only those of a single run may be published."""
    schema = opened.table("accounts")
    base = load_table(opened, "accounts").current_snapshot()
    assert base is not None
    reset_branch(opened, Attempt("accounts", base, cycle=1))
    target = opened.lake.spark_table("accounts", BRANCH)
    for token, whole in commits:
        attempt = Attempt("accounts", base, cycle=1, token=token)
        completion = attempt.completion(whole) if whole is not None else {}
        nothing = spark.table(target).limit(0).withColumn(ACTION, F.lit(APPEND))
        append_inserted(nothing, target, schema, attempt.properties() | completion)
    assert is_finished == (finished_head(load_table(opened, "accounts"), 1, None) is not None)


@pytest.mark.parametrize("merger", [merging_by_spark, unchanged])
def test_a_merge_that_misses_keys_is_not_finished(
    spark: "SparkSession",
    session_lake: LakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    merger: Callable[[Pipeline], Pipeline],
) -> None:
    """A process that ends between a merge that found too few keys and the full merge publishes neither."""
    pipeline = merger(bank_pipeline(session_lake))
    feed(pipeline, START + SECOND, *transfer({1: 99, 2: 101}, START + 1))
    order_changes(pipeline, spark)
    with monkeypatch.context() as patch:
        patch.setattr(merge, "full_build", lambda *_args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            merge_tables(pipeline, spark, [pipeline.table("accounts")])
    assert finished_head(load_table(pipeline, "accounts"), 1, None) is None
    run_steps(pipeline, spark)
    assert balances(pipeline) == {1: 99, 2: 101}


def test_two_runs_cannot_both_publish(
    spark: "SparkSession", bank: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two cuts of one number only the first is committed."""
    newest = len(list_cuts(bank.lake))
    feed_next(bank)
    order_changes(bank, spark)
    merge_tables(bank, spark, bank.tables)
    interrupt_once(monkeypatch, publication, "append_cut", lambda: publish_cut(bank))
    with pytest.raises(CommitConflict, match=f"Another run published cut {newest + 1}"):
        publish_cut(bank)
    assert list(range(1, newest + 2)) == [cut.cut for cut in list_cuts(bank.lake)]


def test_a_plan_does_not_mix_a_cut_with_a_newer_table(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run publishes after this one has read the newest cut: no change is merged twice.

    So it is when a table is planned, and when its history is.
    """
    pipeline = bank_pipeline(session_lake, accounts=TableOptions(history=True))
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)

    def rival() -> None:
        run_steps(pipeline, spark)
        feed_next(pipeline)
        run_steps(pipeline, spark)

    for module, step in ((merge, "ensure_table"), (history_plan, "ensure_history")):
        feed_next(pipeline)
        order_changes(pipeline, spark)
        if module is history_plan:
            merge_tables(pipeline, spark, pipeline.tables)
        interrupt_once(monkeypatch, module, step, rival)
        with pytest.raises(CommitConflict, match=r"has published table .* since this run read cut"):
            run_steps(pipeline, spark)
        run_steps(pipeline, spark)
    assert failed_checks(pipeline, spark, "keys_unique", "tables_equal_log", "histories_sound") == {}


def test_a_delayed_run_moves_no_table_back(
    spark: "SparkSession", bank: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run publishes the next cut between a run's look at a table and its move of `main`."""

    def rival() -> None:
        feed_next(bank)
        run_steps(bank, spark)

    feed_next(bank)
    order_changes(bank, spark)
    merge_tables(bank, spark, bank.tables)
    interrupt_once(monkeypatch, branches, "_retention", rival)
    delayed = publish_cut(bank)
    newest = list_cuts(bank.lake)[-1]
    assert delayed is not None
    assert delayed.cut + 1 == newest.cut
    heads = {name: head(load_table(bank, name)) for name in newest.tables}
    assert newest.tables == {name: at.snapshot_id for name, at in heads.items() if at is not None}


def test_a_lost_cut_that_tables_have_moved_to_is_published_again(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables go back to the cut before, or to nothing, and the next cycle publishes what was merged.

    The cut has the same number again. A second process that was about to move the tables back when the first
    one published the cut again ends with a conflict, and moves none.
    """
    bank = bank_pipeline(session_lake)
    cut_table = f"{bank.lake.system_namespace}.{CUT}"

    def publish_again() -> None:
        assert revert_lost_commits(bank.lake) == (cut_table,)
        publish_cut(bank)

    for number, is_second in product((1, 2), (False, True)):
        if not is_second:
            feed_cycle(bank, number)
            run_steps(bank, spark)
        lost_cut = lose_newest_cut(bank)
        assert number == lost_cut.cut
        if is_second:
            interrupt_once(monkeypatch, lost_commits, "_move_back", publish_again)
            with pytest.raises(CommitConflict, match="Another run changed"):
                revert_lost_commits(bank.lake)
            newest_version = head(found_table(bank, "accounts"))
            assert newest_version is not None
            assert newest_version.snapshot_id == list_cuts(bank.lake)[-1].tables["accounts"]
        else:
            publish_again()
        again = publish_cut(bank)
        assert again is not None
        assert replace(lost_cut, published_micros=again.published_micros) == again
        assert list_cuts(bank.lake)[-1] == again
        assert expected_balances(number) == balances(bank)


def lose_newest_cut(bank: Pipeline) -> Cut:
    """Delete the files of the commit of the newest cut, and return the cut."""
    lost_cut, newest = list_cuts(bank.lake)[-1], head(bank.lake.system_table(CUT))
    assert newest is not None
    Path(urlsplit(newest.manifest_list).path).unlink()
    return lost_cut


def test_maintenance_by_another_process_disturbs_no_cycle(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compacts and expires what it may within a merge and before `main` moves; the next try continues."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    other = replace(pipeline, settings=replace(pipeline.settings, maintenance=IMPATIENT))
    runs = list[MaintenanceOutcome | CommitConflict]()

    def maintain() -> None:
        try:
            runs.append(maintain_lake(other, spark, thorough=True))
        except CommitConflict as conflict:
            runs.append(conflict)

    for module, step in ((build, "commit_merge"), (branches, "_retention")):
        number = feed_next(pipeline)
        interrupt_once(monkeypatch, module, step, maintain)
        try:
            run_steps(pipeline, spark)
        except CommitConflict:
            run_steps(pipeline, spark)
        assert expected_balances(number) == balances(pipeline)
    assert [MaintenanceOutcome] * 2 == [type(run) for run in runs], runs
