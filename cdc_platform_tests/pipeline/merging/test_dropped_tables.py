"""Tables that another process drops while a run merges or publishes them."""

from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.errors import CommitConflict, LakeDamaged
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.merging import build
from cdc_platform.pipeline.merging.merge import merge_tables
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.ordering.order import order_changes
from cdc_platform.pipeline.publishing import publication
from cdc_platform.pipeline.publishing.publication import publish_cut
from cdc_platform_tests.pipeline.bank import balances, bank_pipeline, expected_balances, feed_cycle
from cdc_platform_tests.support.interruptions import interrupt_once
from cdc_platform_tests.support.pipelines import merging_by_spark, run_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def locally(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline itself, which merges few changes in this process."""
    return pipeline


MERGES: Final = (
    *((locally, step) for step in ("reset_branch", "commit_merge")),
    *((merging_by_spark, step) for step in ("reset_branch", "append_inserted", "verify_attempt")),
)
"""What merges, and the step before which the table is dropped."""


def test_a_table_that_is_dropped_meanwhile_is_a_conflict(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other error would end `sync --continuous`; the next try creates the table, whatever merges it."""
    bank = bank_pipeline(session_lake)
    feed_cycle(bank, 1)
    order_changes(bank, spark)
    for merger, step in MERGES:
        interrupt_once(
            monkeypatch, build, step, lambda: bank.lake.catalog.drop_table(f"{bank.name}.accounts")
        )
        with pytest.raises(CommitConflict), reaching(session_lake):
            merge_tables(merger(bank), spark, [bank.table("accounts")])
    run_steps(bank, spark)
    assert balances(bank) == expected_balances(1)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_table_that_is_dropped_or_replaced_while_a_cut_names_it_is_damage(
    spark: "SparkSession", session_lake: LakeSettings, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    """The lake lacks what the cut names; the error of a library would end `sync --continuous`."""
    bank = bank_pipeline(session_lake)
    feed_cycle(bank, 1)
    order_changes(bank, spark)
    merge_tables(bank, spark, bank.tables)

    def replace() -> None:
        catalog, name = bank.lake.catalog, f"{bank.name}.accounts"
        schema = catalog.load_table(name).schema()
        catalog.drop_table(name)
        if is_replaced:
            catalog.create_table(name, schema)

    interrupt_once(monkeypatch, publication, "append_cut", replace)
    words = "replaced it or expired its snapshots" if is_replaced else "dropped it"
    with pytest.raises(LakeDamaged, match=f"another program has {words}"), reaching(session_lake):
        publish_cut(bank)
