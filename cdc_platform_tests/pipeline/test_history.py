"""Histories: every version of every row, whatever the ticks, and nothing twice, whatever is killed."""

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cdc_platform.lake.cuts import list_cuts
from cdc_platform.lake.settings import LakeSettings
from cdc_platform.model.table_options import TableOptions, history_name
from cdc_platform.model.table_schema import TableSchema
from cdc_platform.model.timestamps import to_datetime
from cdc_platform.pipeline.invariants import EVERYTHING, check_histories
from cdc_platform_tests.example_tables import TABLES
from cdc_platform_tests.fake_stream import Slicing, raw_rows
from cdc_platform_tests.history import History
from cdc_platform_tests.pipelines import append_raw, make_pipeline, rows_of, run_steps
from cdc_platform_tests.strategies import streams
from cdc_platform_tests.typed_values import typed_row
from cdc_platform_tests.versions import Version, kept_rows_at, versions_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

EVERY_OPTION = {
    "accounts": TableOptions(history=True, soft_delete=True),
    "orders": TableOptions(history=True),
    "memberships": TableOptions(soft_delete=True),
}


class Killed(BaseException):
    """Stands for the end of a process: nothing may catch it."""


@settings(
    max_examples=5,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(stream=streams(max_transactions=16))
def test_histories_and_kept_rows_equal_the_model_at_every_cut(
    spark: "SparkSession", session_lake: LakeSettings, stream: tuple[History, Slicing]
) -> None:
    """Whatever is done to rows, and however it is cut into ticks, the versions are those of the model."""
    source, slicing = stream
    pipeline = make_pipeline(
        session_lake, TABLES, first_micros=slicing.tree.start_micros, options=EVERY_OPTION
    )
    for batch in raw_rows(source, slicing):
        append_raw(pipeline, batch.tick, batch.rows, position_micros=0)
        run_steps(pipeline, spark)
    for cut in list_cuts(pipeline.lake):
        versions, kept = versions_at(source, cut.position_micros), kept_rows_at(source, cut.position_micros)
        for table in pipeline.histories:
            name = history_name(table.name)
            expected = [version_row(table, version) for version in versions[table.name]]
            assert sorted(expected, key=repr) == rows_of(pipeline, name, cut.tables[name])
        for name in ("accounts", "memberships"):
            table = source.table(name)
            rows = [
                {
                    **key_and_values(table, key, row.row),
                    "__deleted": row.deleted_micros is not None,
                    "__deleted_at": moment(row.deleted_micros),
                }
                for key, row in kept[name].items()
            ]
            assert sorted(rows, key=repr) == rows_of(pipeline, name, cut.tables[name])
    assert check_histories(pipeline, spark, EVERYTHING).passed


def key_and_values(table: TableSchema, key: Any, row: Any) -> dict[str, Any]:
    """Return a row of the model with Python values."""
    names = [column.name for column in table.key_columns]
    return typed_row(table, {**dict(zip(names, key, strict=True)), **row})


def version_row(table: TableSchema, version: Version) -> dict[str, Any]:
    """Return a version of the model as the row that a history has."""
    return {
        **key_and_values(table, version.key, version.row),
        "valid_from": moment(version.since_micros),
        "valid_to": moment(version.until_micros),
        "is_current": version.until_micros is None,
        "transaction_id": version.transaction_id,
    }


def moment(micros: int | None) -> Any:
    """Return a moment as a table gives it back."""
    return to_datetime(micros) if micros is not None else None
