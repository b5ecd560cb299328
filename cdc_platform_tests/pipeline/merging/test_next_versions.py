"""Plans of the next versions of tables."""

from pathlib import Path
from threading import Barrier

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.pipeline.merging.build import Build, MergeOutcome
from cdc_platform.pipeline.merging.next_versions import catch_up
from cdc_platform.pipeline.versions.handover import Handover
from cdc_platform_tests.example_tables import table
from cdc_platform_tests.support.pipelines import make_pipeline


def test_tables_are_planned_together(tmp_path: Path) -> None:
    """Each plan waits for the catalog; the outcomes are in the order of the tables."""
    tables = [table(name, {"id": "INT64"}, {"a": "INT64"}) for name in ("t", "u", "v")]
    met = Barrier(len(tables), timeout=30)

    def plan(schema: TableSchema, _cut: Cut | None, _handover: Handover | None) -> Build | MergeOutcome:
        met.wait()
        return MergeOutcome(schema.name, 1)

    pipeline = make_pipeline(LakeSettings(str(tmp_path)), tables)
    outcomes = catch_up(pipeline, {schema.name: schema for schema in tables}, plan, lambda _builds, _cut: ())
    assert [MergeOutcome(schema.name, 1) for schema in tables] == [*outcomes]
