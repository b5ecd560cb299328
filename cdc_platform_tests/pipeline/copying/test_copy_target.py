"""Tables that copies are written into, and those that they leave behind."""

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.copies import COPY_BRANCH, CopyPlan, save_plans
from cdc_platform.lake.state.cuts import Cut, append_cut
from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.pipeline.copying.copy import remove_orphans
from cdc_platform_tests.support.pipelines import START, make_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = pa.table({"id": [1]})
TABLES: Final = {
    # Where the table in the lake has rows.
    "copied": (COPY_BRANCH,),
    "written": (COPY_BRANCH, "main"),  # somebody has put rows where readers look
    "foreign": ("main",),  # it was never copied into
    "fresh": (),  # somebody else has just made it
    "unplanned": (COPY_BRANCH,),  # no copy of the pipeline was ever planned
    "watched": (COPY_BRANCH,),  # the source still has it
    "published": (COPY_BRANCH,),  # a cut shows it
}


@pytest.mark.integration
def test_only_what_a_copy_has_left_of_a_dropped_table_is_removed(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """A table of the same name that holds anything else, or that a cut names, stays as it is."""
    pipeline = make_pipeline(session_lake, ())
    lake = pipeline.lake
    for name, branches in TABLES.items():
        table = lake.catalog.create_table(f"{pipeline.name}.{name}", ROWS.schema)
        # A branch needs a snapshot to begin with.
        table.append(ROWS if "main" in branches else ROWS.schema.empty_table())
        if COPY_BRANCH in branches:
            table.append(ROWS, branch=COPY_BRANCH)
    histories = {name: ColumnHistory(name, is_watched=False, is_dropped=name != "watched") for name in TABLES}
    pipeline.know(SchemaHistory(cycle=1, tables=histories))
    save_plans(lake, [CopyPlan(name, 1, START, START, "[]", ()) for name in TABLES if name != "unplanned"])
    append_cut(lake, Cut(1, START, 1, {"published": 1}, START))

    (text,) = remove_orphans(pipeline, spark)
    assert text.startswith("The source dropped `copied` before its copy was complete")
    assert [name for name in TABLES if lake.table(name) is None] == ["copied"]
    assert remove_orphans(pipeline, spark) == ()
