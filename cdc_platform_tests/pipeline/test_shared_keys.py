"""Keys that a statement shifts row by row, through all steps of a cycle."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import DELETED, IS_CURRENT, TableOptions
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.debezium.settings.connector import Strategy
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import append
from cdc_platform_tests.sources.debezium.deferred import FIRST, DeferredConnector, without_headers
from cdc_platform_tests.sources.debezium.written_events import TABLE, settings_with
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.pipelines import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("strategy", "has_headers"), [("omit", True), ("enrich", False)])
def test_no_row_is_lost_to_the_one_that_had_its_key(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, strategy: str, has_headers: bool
) -> None:
    """Table and history have every row under its new key, whole, also among keys that tables know.

    A history is made of the log, which has all values with `enrich`, so `omit` is the harder one for it.
    """
    connector = DeferredConnector()
    connector.insert_all(FIRST)
    source = settings_with(
        input=FilesInput(str(tmp_path)), has_transaction_topic=True, strategy=Strategy(strategy)
    )
    options = {TABLE: TableOptions(history=strategy == "omit", soft_delete=True)}
    settings = PipelineSettings(f"shared_keys_{strategy}", source, session_lake, table_options=options)
    append(tmp_path / "events.jsonl", connector.lines)
    pipeline = sync(open_pipeline(settings), spark)

    connector.lines.clear()
    for first in (1, 2):
        connector.begin()
        connector.move_all({key: key + 1 for key in range(first, first + 6)})
        connector.end()
    connector.begin()
    connector.move_all({4: 5, 5: 4})
    connector.change(5, n=1)
    connector.end()
    append(tmp_path / "events.jsonl", connector.lines if has_headers else without_headers(connector.lines))
    pipeline = sync(pipeline, spark)
    names = ("id", "n", "big", "xs")
    living = [row for row in rows_of(pipeline, TABLE) if not row[DELETED]]
    versions = rows_of(pipeline, f"{TABLE}__history") if strategy == "omit" else None
    current = [row for row in versions if row[IS_CURRENT]] if versions is not None else living
    for rows in (living, current):
        assert connector.rows_sent() == sorted(
            ({name: row[name] for name in names} for row in rows), key=lambda row: int(row["id"])
        )
    assert failed_checks(pipeline, spark) == {}
