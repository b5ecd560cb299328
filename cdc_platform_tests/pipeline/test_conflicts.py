"""Two runs of one pipeline at once: one commits, the other one changes nothing and says so."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812  the name that all of Spark's documentation uses

from cdc_platform.errors import CommitConflict
from cdc_platform.lake.catalog.lake import LOG, RAW
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import BRANCH, read_mark
from cdc_platform.lake.state.cuts import list_cuts
from cdc_platform.model.stream.read_windows import ReadWindow
from cdc_platform.pipeline.merging import build, merge
from cdc_platform.pipeline.merging.merge import merge_table, merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering import change_streams, log_commit
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing import publish
from cdc_platform.pipeline.publishing.publish import publish_cut
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
    opening,
    transfer,
)
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import (
    START,
    feed,
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


@pytest.mark.parametrize("local_read_s", [0.0, 15.0])
def test_two_reads_cannot_both_commit_a_cycle(
    spark: "SparkSession", session_lake: LakeSettings, local_read_s: float
) -> None:
    """The second of two runs that planned on the same lineage fails, and its records are read once."""
    pipeline = bank_pipeline(session_lake)
    pipeline = replace(pipeline, settings=replace(pipeline.settings, local_read_s=local_read_s))
    source = source_of(pipeline)
    source.now_micros = START + SECOND
    rivals = [lambda: read_windows(pipeline, spark)]

    def answer(cycle: int, windows: Sequence[ReadWindow]) -> list[RawRow]:
        if rivals:
            rivals.pop()()
        rows = [opening(1, 100, START), *(window_row(planned, records=1) for planned in windows)]
        return [{**row, "cycle": cycle} for row in rows]

    source.answer = answer
    with pytest.raises(CommitConflict, match=r"Cycle 1 of .* was not committed"):
        read_windows(pipeline, spark)
    assert pipeline.lake.system_table(RAW).scan().to_arrow().num_rows == 2
    run_steps(pipeline, spark)
    assert balances(pipeline) == {1: 100}


@pytest.mark.parametrize(
    ("rival_has_more", "orderer", "counting"),
    [
        (False, reading_by_spark, "measure"),
        (True, reading_by_spark, "measure"),
        (True, unchanged, "measure_rows"),
    ],
)
def test_two_runs_cannot_both_order_the_same_records(
    spark: "SparkSession",
    session_lake: LakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    rival_has_more: bool,
    orderer: Callable[[Pipeline], Pipeline],
    counting: str,
) -> None:
    """The log takes a window once, also when the rival has ordered a later cycle together with it."""
    pipeline = orderer(bank_pipeline(session_lake))
    feed_cycle(pipeline, 1)
    order_changes(pipeline, spark)
    feed_cycle(pipeline, 2)

    def rival() -> None:
        if rival_has_more:
            feed_cycle(pipeline, 3)
        order_changes(pipeline, spark)

    interrupt_once(monkeypatch, change_streams, counting, rival)
    with pytest.raises(CommitConflict):
        order_changes(pipeline, spark)
    records = [(row["record_id"], row["mod_ordinal"]) for row in log_rows(pipeline)]
    assert sorted(set(records)) == sorted(records)


def test_an_idle_order_cannot_take_the_log_back(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that found nothing does not commit its watermark on top of a later one."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    order_changes(pipeline, spark)
    feed(pipeline, START + 2 * SECOND)

    def rival() -> None:
        order_changes(pipeline, spark)
        feed(pipeline, START + 4 * SECOND, opening(9, 100, START + 3 * SECOND))
        order_changes(pipeline, spark)

    interrupt_once(monkeypatch, log_commit, "_properties", rival)
    with pytest.raises(CommitConflict):
        order_changes(pipeline, spark)
    mark = read_mark(pipeline.lake.system_table(LOG))
    assert (mark.cycle, mark.position_micros) == (3, START + 4 * SECOND)


@pytest.mark.parametrize(
    ("step", "merger"),
    [
        *(("append_inserted", merging_by_spark), ("merge_existing", merging_by_spark)),
        *(("verify_attempt", merging_by_spark), ("verify_attempt", unchanged), ("commit_merge", unchanged)),
    ],
)
def test_two_merges_cannot_mix_on_the_branch(
    spark: "SparkSession",
    session_lake: LakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    merger: Callable[[Pipeline], Pipeline],
) -> None:
    """A run whose branch was taken over publishes nothing; what is published next is right."""
    pipeline = merger(bank_pipeline(session_lake))
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    feed_cycle(pipeline, 2)
    order_changes(pipeline, spark)

    def rival() -> None:
        # Like any second run, it finds the branch unfinished and starts over.
        monkeypatch.setattr(merge, "finished_head", lambda _table: None)
        merge_table(pipeline, spark, "accounts")
        monkeypatch.setattr(merge, "finished_head", finished_head)

    interrupt_once(monkeypatch, build, step, rival)
    with pytest.raises(CommitConflict, match=r"Another run (merged `accounts`|has changed)"):
        merge_table(pipeline, spark, "accounts")
    run_steps(pipeline, spark)
    assert expected_balances(2) == balances(pipeline)
    assert sum(expected_balances(2).values()) == sum(balances(pipeline).values())


@pytest.mark.parametrize(
    ("commits", "is_finished"),
    [
        ([("a", None), ("a", 2)], True),  # one attempt, whole
        ([("a", 1)], True),  # one attempt of one commit
        ([("a", None)], False),  # the first half of one
        ([("a", 2)], False),  # the second half of one: a rival has reset the branch between
        ([("a", None), ("b", 2)], False),  # halves of two attempts
        ([("a", None), ("b", None), ("a", 2)], False),  # interleaved
        ([("a", 1), ("b", 1)], False),  # one upon the other: applied twice
        ([], False),  # nothing
    ],
)
def test_only_one_whole_attempt_upon_its_base_is_finished(
    spark: "SparkSession",
    session_lake: LakeSettings,
    commits: list[tuple[str, int | None]],
    is_finished: bool,
) -> None:
    """Whatever two runs have left on a branch, only what one of them has made alone may be published."""
    pipeline = bank_pipeline(session_lake)
    schema = pipeline.table("accounts")
    table_ddl.ensure_table(pipeline, spark, schema)
    base = load_table(pipeline, "accounts").current_snapshot()
    assert base is not None
    reset_branch(pipeline, Attempt("accounts", base, cycle=1))
    target = pipeline.lake.spark_table("accounts", BRANCH)
    for token, whole in commits:
        attempt = Attempt("accounts", base, cycle=1, token=token)
        completion = attempt.completion(whole) if whole is not None else {}
        nothing = spark.table(target).limit(0).withColumn(ACTION, F.lit(APPEND))
        append_inserted(nothing, target, schema, attempt.properties() | completion)
    assert is_finished == (finished_head(load_table(pipeline, "accounts")) is not None)


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
            merge_table(pipeline, spark, "accounts")
    assert finished_head(load_table(pipeline, "accounts")) is None
    run_steps(pipeline, spark)
    assert balances(pipeline) == {1: 99, 2: 101}


def test_two_runs_cannot_both_publish(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two cuts of one number only the first is committed."""
    pipeline = bank_pipeline(session_lake)
    feed_cycle(pipeline, 1)
    order_changes(pipeline, spark)
    merge_tables(pipeline, spark, pipeline.tables)
    interrupt_once(monkeypatch, publish, "append_cut", lambda: publish_cut(pipeline))
    with pytest.raises(CommitConflict, match="Cut 1 was published by another run"):
        publish_cut(pipeline)
    assert [cut.cut for cut in list_cuts(pipeline.lake)] == [1]
