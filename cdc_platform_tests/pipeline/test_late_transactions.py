"""Transactions of a change stream that leave quarantine, and enter a log that is in order, late."""

from typing import TYPE_CHECKING, Any

import pytest

from cdc_platform.errors import CutNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.quarantine import count_quarantined_records, load_quarantine
from cdc_platform.model.schema.table_options import IS_CURRENT, TableOptions
from cdc_platform.model.stream.quarantined_records import QuarantineFilter
from cdc_platform.model.stream.records import ModType
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.invariants import QUARANTINE_EMPTY, checks_of
from cdc_platform.pipeline.on_demand.explanation import explain_row
from cdc_platform.pipeline.on_demand.rebuild import rebuild_table
from cdc_platform.pipeline.on_demand.replay import replay_records
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.spark.log.faults import fault_of
from cdc_platform_tests.pipeline.bank import SECOND, bank_pipeline, opening
from cdc_platform_tests.support.history import RawRow
from cdc_platform_tests.support.pipelines import START, Mod, data_change, feed, log_rows, rows_of, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

NEEDS_SOURCE = {"tables_equal_source", "schema_changes"}


def change(
    kind: ModType, account: int, at: int, transaction: str, sequence: int = 0, **values: str
) -> RawRow:
    """Return a record of the accounts, of a transaction of two records if it is `refused`."""
    mod: Mod = ({"id": str(account)}, values)
    records = 2 if transaction == "refused" else 1
    return data_change(
        "accounts",
        kind,
        mod,
        at_micros=START + at,
        transaction=transaction,
        sequence=sequence,
        records=records,
    )


def failures(pipeline: Pipeline, spark: "SparkSession") -> dict[str, str]:
    """Return what the checks that fail say, of those that need neither a source nor an empty quarantine."""
    results = {
        check.name: check.run(pipeline, spark, EVERYTHING)
        for check in checks_of(pipeline.capabilities)
        if check.name not in {*NEEDS_SOURCE, QUARANTINE_EMPTY}
    }
    return {name: result.summary for name, result in results.items() if not result.passed}


def table_rows(pipeline: Pipeline, name: str, *more: str) -> list[tuple[Any, ...]]:
    """Return the rows of the accounts or of their history."""
    return sorted(
        tuple(row[column] for column in ("id", "owner", "balance", *more)) for row in rows_of(pipeline, name)
    )


def feed_refused(pipeline: Pipeline, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Run two cycles; the second one has a refused transaction, and an unusable one."""
    feed(pipeline, START + SECOND, *(opening(n, 100, START + n) for n in (1, 2, 3)))
    run_steps(pipeline, spark)
    with monkeypatch.context() as patch:
        # An older version, which cannot take something that the present one can.
        patch.setattr("cdc_platform.spark.log.order.fault_of", refuses(fault_of))
        feed(
            pipeline,
            START + 2 * SECOND,
            change(ModType.UPDATE, 1, SECOND + 1, "refused", owner="x", balance="5"),
            change(ModType.DELETE, 3, SECOND + 1, "refused", 1),
            {**change(ModType.UPDATE, 2, SECOND + 2, "broken", balance="1"), "mod_type": "UNKNOWN"},
        )
        run_steps(pipeline, spark)


def test_a_replayed_transaction_overrides_nothing_newer(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It enters the log once, whole, at its own place: tables and histories are as if it had come in time."""
    pipeline = bank_pipeline(session_lake, accounts=TableOptions(history=True))
    feed_refused(pipeline, spark, monkeypatch)
    feed(
        pipeline,
        START + 3 * SECOND,
        change(ModType.UPDATE, 1, 2 * SECOND + 1, "later", balance="7"),
        opening(3, 50, START + 2 * SECOND + 2),
    )
    cut = run_steps(pipeline, spark)
    assert table_rows(pipeline, "accounts") == [(1, "owner 1", 7), (2, "owner 2", 100), (3, "owner 3", 50)]

    assert len(replay_records(pipeline, QuarantineFilter(record="refused/00000000")).from_records) == 2
    assert len(replay_records(pipeline, QuarantineFilter()).from_records) == 1
    assert count_quarantined_records(pipeline.lake) == 0
    feed(pipeline, START + 4 * SECOND, change(ModType.UPDATE, 2, 3 * SECOND + 1, "newest", balance="120"))
    order_changes(pipeline, spark)
    # The process ends here; the next one knows by the log what is to be rebuilt.
    pipeline = Pipeline(pipeline.settings, open_pipeline(pipeline.settings).lake, pipeline.source)
    run_steps(pipeline, spark)
    rows = [(1, "x", 7), (2, "owner 2", 120), (3, "owner 3", 50)]
    versions = [
        (1, "owner 1", 100, False),
        (1, "x", 5, False),
        (1, "x", 7, True),
        (2, "owner 2", 100, False),
        (2, "owner 2", 120, True),
        (3, "owner 3", 50, True),
        (3, "owner 3", 100, False),
    ]
    assert rows == table_rows(pipeline, "accounts")
    assert versions == table_rows(pipeline, "accounts__history", IS_CURRENT)
    (record,) = load_quarantine(pipeline.lake)
    assert (record.transaction_id, record.cycle) == ("broken", 4)

    # Nothing is taken twice, ordinary cycles continue, and a second rebuild gives the same.
    feed(pipeline, START + 5 * SECOND, change(ModType.UPDATE, 3, 4 * SECOND + 1, "after", balance="51"))
    run_steps(pipeline, spark)
    assert [row["transaction_id"] for row in log_rows(pipeline)].count("refused") == 2
    for name in ("accounts", "accounts__history"):
        before = table_rows(pipeline, name)
        rebuild_table(pipeline, spark, name)
        assert before == table_rows(pipeline, name)
    assert (3, "owner 3", 51) in table_rows(pipeline, "accounts")
    with pytest.raises(CutNotFound, match="replayed"):
        rebuild_table(pipeline, spark, "accounts", at_cut=cut.cut)
    provenance = explain_row(pipeline, "accounts", "1").provenance
    assert [step.change.transaction_id for step in provenance.steps][1:] == ["refused", "later"]
    assert failures(pipeline, spark) == {}


def refuses(judge: Any) -> Any:
    """Return what judges as another judge does, and refuses one transaction besides."""

    def refusing(*arguments: Any) -> str:
        is_refused = "server_transaction_id = 'refused' AND mod_type = 'UPDATE'"
        return f"if({is_refused}, 'an older version cannot take it', {judge(*arguments)})"

    return refusing
