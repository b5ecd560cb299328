"""The platform's invariants: each check passes on a sound lake, and fails on the damage that it detects."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.branches import move_branch
from cdc_platform.lake.commits.commits import MAIN, POSITION, Mark, ancestors_of, fact, head, read_mark
from cdc_platform.lake.state.control import load_lineage
from cdc_platform.lake.state.cuts import append_cut, newest_cut
from cdc_platform.lake.state.schema_history import append_events, load_history
from cdc_platform.model.base.schemas import CHANGE_LOG
from cdc_platform.model.base.stored_names import CYCLE, LINEAGE, LOG, RAW, SCHEMA
from cdc_platform.model.schema.schema_events import SchemaChange, SchemaEvent
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.model.stream.read_windows import ReadWindow, WindowOutcome
from cdc_platform.model.stream.records import ModType
from cdc_platform.model.stream.source_capabilities import CHANGE_STREAM
from cdc_platform.pipeline.checks.check_result import EVERYTHING, Check, CheckResult, Scope
from cdc_platform.pipeline.checks.invariants import QUARANTINE_EMPTY, checks_of
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.pipeline.bank import SECOND, bank_pipeline, feed_cycle, opening
from cdc_platform_tests.support.pipelines import (
    START,
    append_raw,
    data_change,
    feed,
    found_table,
    run_steps,
    source_of,
    window_row,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Damage = Callable[[Pipeline, "SparkSession"], None]


def newest_scope(pipeline: Pipeline) -> Scope:
    """Return the scope of the newest cycle of the log."""
    log = pipeline.lake.system_table(LOG)
    marks = (snapshot for snapshot in ancestors_of(log, head(log)) if fact(snapshot, CYCLE) is not None)
    next(marks, None)
    before = next(marks, None)
    if before is None:
        return EVERYTHING
    return Scope(int(fact(before, CYCLE) or 0), int(fact(before, POSITION) or 0))


def sound_pipeline(spark: "SparkSession", lake: LakeSettings) -> Pipeline:
    """Return the bank after two cycles, with a duplicate, a quarantined record, and a source that agrees."""
    pipeline = bank_pipeline(lake, accounts=TableOptions(history=True))
    first = opening(5, 50, START + 7)
    bad = {**opening(6, 60, START + 8), "mod_type": "UNKNOWN"}
    feed(pipeline, START + SECOND - 1, first, first, bad)
    run_steps(pipeline, spark)
    feed_cycle(pipeline, 1)
    run_steps(pipeline, spark)
    cut = newest_cut(pipeline.lake)
    assert cut is not None
    snapshots = dict(cut.tables)
    contents = {
        name: found_table(pipeline, name).scan(snapshot_id=snapshot).to_arrow()
        for name, snapshot in snapshots.items()
    }

    def rows_at(table: str, _micros: int) -> Iterator[pa.RecordBatch]:
        yield from contents[table].to_batches(max_chunksize=2)

    source_of(pipeline).rows_at = rows_at
    return pipeline


def log_sql(statement: str) -> Damage:
    """Return a damage of the log, or of the raw records."""

    def damage(pipeline: Pipeline, spark: "SparkSession") -> None:
        log, raw = map(pipeline.lake.spark_system_table, (LOG, RAW))
        spark.sql(statement.format(log=log, raw=raw))

    return damage


def silence_a_partition(pipeline: Pipeline, _spark: "SparkSession") -> None:
    """Commit a cycle in which the source said nothing of the only partition, though it was asked twice."""
    mark = read_mark(pipeline.lake.system_table(RAW))
    position = mark.position_micros or START
    report = window_row(ReadWindow("", position, position), WindowOutcome.INTERRUPTED)
    report["read_window"]["error"] = "PartitionStuck: it has sent neither records nor heartbeats"
    append_raw(pipeline, mark.cycle + 1, [report], position + 30 * SECOND)


def take_watermark_back(pipeline: Pipeline, _spark: "SparkSession") -> None:
    """Commit an older watermark."""
    properties = {CYCLE: "2", POSITION: str(START)}
    pipeline.lake.system_table(LOG).append(CHANGE_LOG.empty_table(), snapshot_properties=properties)


def finish_root(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Finish a partition without children."""
    assert load_lineage(pipeline.lake) is not None
    spark.sql(f"UPDATE {pipeline.lake.spark_system_table(LINEAGE)} SET state = 'finished'")


def change_schema(pipeline: Pipeline, _spark: "SparkSession") -> None:
    """Note that a column was added."""
    added = SchemaEvent(
        9, SchemaChange.COLUMN_ADDED, "accounts", "note", '{"code": "STRING"}', since_micros=START
    )
    append_events(pipeline.lake, load_history(pipeline.lake), Mark(9, START, 0), [added])


def history_sql(statement: str) -> Damage:
    """Return a damage of the history of accounts, which the newest cut names."""

    def damage(pipeline: Pipeline, spark: "SparkSession") -> None:
        spark.sql(statement.format(history=pipeline.lake.spark_table("accounts__history")))
        cut, damaged = newest_cut(pipeline.lake), head(found_table(pipeline, "accounts__history"))
        assert cut is not None
        assert damaged is not None
        tables = {**cut.tables, "accounts__history": damaged.snapshot_id}
        append_cut(pipeline.lake, replace(cut, cut=cut.cut + 1, tables=tables))

    return damage


def change_source(pipeline: Pipeline, _spark: "SparkSession") -> None:
    """Let the source have no row at all."""
    source_of(pipeline).rows_at = lambda _table, _micros: iter(())


def insert_again(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Let the source break its word: it inserts a transfer that is there already."""
    for second in (2, 3):
        moved = ({"tid": "same"}, {"amount": "1"})
        at_micros, name = START + second * SECOND, f"again-{second}"
        record = data_change("transfers", ModType.INSERT, moved, at_micros=at_micros, transaction=name)
        feed(pipeline, at_micros + SECOND - 1, record)
        run_steps(pipeline, spark)


CHECKS = checks_of(CHANGE_STREAM)

DAMAGES: list[tuple[str, Damage]] = [
    ("nothing_lost", log_sql("DELETE FROM {log} WHERE keys LIKE '%\"1\"%'")),
    # The log has one change of a record that had two.
    ("nothing_lost", log_sql("UPDATE {raw} SET mods = concat(mods, mods) WHERE table_name = 'accounts'")),
    ("exactly_once", log_sql("INSERT INTO {log} SELECT * FROM {log} WHERE keys LIKE '%\"1\"%'")),
    ("transactions_whole", log_sql("UPDATE {log} SET records_in_transaction = 2 WHERE keys LIKE '%\"1\"%'")),
    ("transactions_whole", log_sql("UPDATE {log} SET ordinal = 100 WHERE keys LIKE '%\"1\"%'")),
    ("lineage_sound", finish_root),
    ("partitions_alive", silence_a_partition),
    ("watermark_monotone", take_watermark_back),
    ("tables_equal_log", log_sql("UPDATE {log} SET new_values = '{{}}' WHERE keys LIKE '%\"1\"%'")),
    ("tables_equal_source", change_source),
    ("schema_changes", change_schema),
    # The last ones: they publish cuts.
    ("histories_sound", history_sql("UPDATE {history} SET valid_to = valid_from WHERE id = 1")),
    ("keys_unique", insert_again),
]


def check_named(name: str) -> Check:
    """Return a check."""
    return next(check for check in CHECKS if check.name == name)


def undo_damage(pipeline: Pipeline, heads: dict[str, int]) -> None:
    """Take the platform's tables back to their snapshots."""
    for name, snapshot_id in heads.items() - heads_of(pipeline).items():
        move_branch(pipeline.lake.system_table(name), MAIN, snapshot_id)


def heads_of(pipeline: Pipeline) -> dict[str, int]:
    """Return the snapshots of the tables that damages change."""
    heads = {name: head(pipeline.lake.system_table(name)) for name in (RAW, LOG, LINEAGE, SCHEMA)}
    return {name: snapshot.snapshot_id for name, snapshot in heads.items() if snapshot is not None}


def test_checks_pass_on_a_sound_lake_and_fail_on_damage(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Over the whole log and over the newest cycle alone all pass; each damage fails the check it is for.

    A record in quarantine is not damage, and whatever the scope it does not let its own check pass. Numbers
    that only grow are texts, of which Dagster makes no plots.
    """
    pipeline = sound_pipeline(spark, session_lake)
    plotted: set[str] = set()
    for check in CHECKS:
        for scope in (EVERYTHING, newest_scope(pipeline)):
            result = check.run(pipeline, spark, scope)
            plotted |= {name for name, fact in result.facts.items() if not isinstance(fact, str)}
            assert result.passed is (check.name != QUARANTINE_EMPTY), f"{check.name}: {result.summary}"
    assert not plotted & {"cut", "cuts", "watermarks"}
    quarantine_result = check_named(QUARANTINE_EMPTY).run(pipeline, spark, EVERYTHING)
    assert quarantine_result.facts == {"quarantined": 1}
    assert "records in quarantine: 1 (accounts: 1); 1 with the reason: the rec" in quarantine_result.summary
    facts = check_named("nothing_lost").run(pipeline, spark, EVERYTHING).facts
    expected = {"records_read": 6, "records_in_log": 4, "duplicates": 1, "quarantined": 1, "lost": 0}
    assert expected == facts
    assert {name for name, _ in DAMAGES} | {QUARANTINE_EMPTY} == {check.name for check in CHECKS}
    heads, results = heads_of(pipeline), dict[str, CheckResult]()
    for number, (name, damage) in enumerate(DAMAGES):
        damage(pipeline, spark)
        results[name] = check_named(name).run(pipeline, spark, EVERYTHING)
        assert not results[name].passed, f"damage {number}: {name}"
        undo_damage(pipeline, heads)
    assert results["keys_unique"].summary == 'duplicate keys in `transfers`: 1, such as {"tid":"same"}'
    keys = results["keys_unique"]
    assert keys.facts == keys.tables["transfers"].facts == {"repeated_keys": 1}
    assert keys.tables["accounts"].facts == {"repeated_keys": 0}


def test_before_the_first_cycle_no_check_fails_and_none_about_tables_passes(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """Before the first cycle checks find nothing wrong, but those that compare tables ask for a cycle."""
    pipeline = bank_pipeline(session_lake)
    results = {check.name: check.run(pipeline, spark, newest_scope(pipeline)) for check in CHECKS}
    asking = {name for name, result in results.items() if not result.passed}
    assert {check.name for check in CHECKS if check.table_name and not check.reads_histories} == asking
    assert all("run a cycle first" in results[name].summary for name in asking)
