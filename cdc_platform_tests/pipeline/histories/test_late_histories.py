"""Histories of sources with late changes: the versions of a changed row are all rebuilt."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import fact, head
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.histories import local_history
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.datastream.files import StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline, user
from cdc_platform_tests.support.pipelines import found_table, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("versions", "engine"), [(4, "cdc_platform"), (3, "spark")])
def test_spark_rebuilds_the_versions_of_a_row_that_has_many(
    spark: "SparkSession",
    session_lake: LakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    versions: int,
    engine: str,
) -> None:
    """One change rebuilds all versions of its row, which may be millions: they need not fit into memory."""
    monkeypatch.setattr(local_history, "MAX_VERSIONS", versions)
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, tmp_path, {"users": TableOptions(history=True)})
    folder.write([user(f"a{second}", "UPDATE-INSERT", second, 1) for second in (100, 110, 120, 130)])
    pipeline = sync(pipeline, spark)
    folder.write([user("b", "UPDATE-INSERT", 115, 1), user("c", "INSERT", 115, 2)])
    pipeline = sync(pipeline, spark)
    version = head(found_table(pipeline, "users__history"))
    assert version is not None
    assert engine == fact(version, "engine-name")
    assert len(rows_of(pipeline, "users__history")) == 6
    assert failed_checks(pipeline, spark) == {}
