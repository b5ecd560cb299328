"""Checks of whole tables in a run, and their results in the lake."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cdc_platform.errors import SourceUnreachable
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.last_results import load_results
from cdc_platform_tests.assets.bench import answer_with, open_bench
from cdc_platform_tests.pipeline.bank import SECOND, opening
from cdc_platform_tests.support.pipelines import source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_an_error_in_one_check_hides_no_other_result(
    spark: "SparkSession", session_lake: LakeSettings
) -> None:
    """When the source goes down, the lake still gets what the checks without it have found."""
    with open_bench(spark, session_lake) as bench:

        def rows_at(_table: str, _micros: int) -> Iterator[pa.RecordBatch]:
            if newest_cut(bench.pipeline.lake) is not None:
                raise SourceUnreachable("nobody answers")
            return iter(())

        begun = source_of(bench.pipeline).first_micros
        answer_with(bench.pipeline, begun + SECOND, opening(1, 100, begun + 1))
        source_of(bench.pipeline).rows_at = rows_at
        assert not bench.run(bench.assets.all_keys, has_full_checks=True).success
        stored = {(each.asset, each.name): each.passed for each in load_results(bench.pipeline.lake)}
    accounts = f"{bench.pipeline.name}/accounts"
    assert stored[accounts, "equals_log"]
    assert (accounts, "equals_source") not in stored
