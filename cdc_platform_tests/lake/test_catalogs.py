"""Catalogs other than the default one: the same cycles, with other settings alone."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from cdc_platform.lake.catalog.lake_settings import KEPT_BY_TIME, LakeSettings
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform_tests.pipeline.bank import balances, bank_pipeline, expected_balances, feed_cycle
from cdc_platform_tests.servers.postgresql import postgresql, require_postgresql
from cdc_platform_tests.servers.rest_catalog import rest_catalog
from cdc_platform_tests.support.pipelines import found_table, run_steps
from cdc_platform_tests.support.sessions import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def run_cycles(spark: "SparkSession", folder: Path, catalog: Mapping[str, str]) -> dict[int, int]:
    """Run the small bank's cycles on a catalog, and return the balances that readers see."""
    lake = LakeSettings(str(folder), catalog)
    session, pipeline = session_of(spark, lake), bank_pipeline(lake)
    for number in (1, 2):
        feed_cycle(pipeline, number)
        run_steps(pipeline, session)
    maintain_lake(pipeline, session, thorough=True)
    accounts = found_table(pipeline, "accounts")
    assert accounts.schema().identifier_field_names() == {"id"}
    assert KEPT_BY_TIME.items() <= accounts.properties.items()
    return balances(pipeline)


def test_a_postgresql_catalog(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark's JDBC catalog and pyiceberg's SQL catalog share one database."""
    programs = require_postgresql()
    # Another user runs it, who cannot look into the folders of a test.
    with TemporaryDirectory() as folder, postgresql(programs, Path(folder) / "cluster") as uri:
        assert expected_balances(2) == run_cycles(spark, tmp_path / "lake", {"type": "sql", "uri": uri})


def test_a_rest_catalog(spark: "SparkSession", tmp_path: Path) -> None:
    """Iceberg's own REST test server decides on commits."""
    (tmp_path / "rest").mkdir()
    with rest_catalog(tmp_path / "rest") as uri:
        catalog = {"type": "rest", "uri": uri, "warehouse": (tmp_path / "rest" / "warehouse").as_uri()}
        assert expected_balances(2) == run_cycles(spark, tmp_path / "lake", catalog)
