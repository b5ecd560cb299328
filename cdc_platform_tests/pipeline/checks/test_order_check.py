"""The check that a source's log is ordered as its clock: a log that starts over is reported."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.pipeline.checks.check_result import EVERYTHING
from cdc_platform.pipeline.checks.order_check import check_order
from cdc_platform.sources.datastream.settings.policies import BackfillPolicy
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.datastream.files import ORIGIN, MadeEvent, StreamFolder
from cdc_platform_tests.support.datastream.pipelines import make_pipeline, user
from cdc_platform_tests.support.pipelines import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

DAY_S: Final = 86_400
BEFORE: Final = [
    user("a", "INSERT", 5_000, 1, "first"),
    user("b", "INSERT", 5_010, 2, "first"),
    user("c", "INSERT", 5_020, 3, "first"),
    # A backfill states when it has read the row, and by default loses to every captured change.
    replace(user("d", "INSERT", 0, 3, "read"), at_s=DAY_S),
]
AFTER: Final = [
    # The positions of another server start over, and its clock goes on.
    replace(user("e", "UPDATE-INSERT", 100, 1, "second"), at_s=DAY_S),
    replace(user("f", "DELETE", 200, 2), at_s=DAY_S),
    # A key that another one has left, within an hour: a clock may be wrong.
    replace(user("g", "UPDATE-INSERT", 4_000, 3, "late"), at_s=5_900),
]


def test_a_log_that_starts_over_is_reported(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """Its changes lose to older ones, so rows stand still; with an epoch they count."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, folder.path)
    for events in (BEFORE, AFTER):
        folder.write(events)
        pipeline = sync(pipeline, spark)
    assert sorted((row["id"], row["name"]) for row in rows_of(pipeline, "users")) == [
        (1, "first"),
        (2, "first"),
        (3, "first"),
    ]
    result = check_order(pipeline, spark, EVERYTHING)
    later, earlier = to_rfc3339(ORIGIN + DAY_S * 10**6), to_rfc3339(ORIGIN + 5_000 * 10**6)
    assert not result.passed
    assert result.facts == {"overtaken": 2}
    assert result.summary.startswith(
        '2 rows of `users` have a newer change than the one that counts, such as {"id":1}: '
        f"the one of {earlier} counts, not that of {later}. "
    )
    assert "`epochs`" in result.summary
    assert failed_checks(pipeline, spark).keys() == {"order_follows_clock"}

    epoch = to_rfc3339(ORIGIN + DAY_S // 2 * 10**6)
    restarted = sync(make_pipeline(session_lake, folder.path, epochs=(epoch,)), spark)
    names = sorted((row["id"], row["name"]) for row in rows_of(restarted, "users"))
    assert names == [(1, "second"), (3, "first")]
    assert failed_checks(restarted, spark) == {}


def test_rows_that_a_forced_backfill_has_read_again_are_right(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """As the warning advises: the backfill counts, whatever the positions of the changes before it."""
    folder = StreamFolder(tmp_path)
    epoch = to_rfc3339(ORIGIN + 2 * DAY_S * 10**6)
    pipeline = make_pipeline(session_lake, folder.path, epochs=(epoch,), backfill_policy=BackfillPolicy.FORCE)
    folder.write([BEFORE[0], replace(user("e", "UPDATE-INSERT", 100, 1, "second"), at_s=DAY_S)])
    pipeline = sync(pipeline, spark)
    assert failed_checks(pipeline, spark).keys() == {"order_follows_clock"}
    folder.write([replace(user("r", "INSERT", 0, 1, "second"), at_s=3 * DAY_S)])
    pipeline = sync(pipeline, spark)
    assert [row["name"] for row in rows_of(pipeline, "users")] == ["second"]
    assert failed_checks(pipeline, spark) == {}


def test_an_order_of_the_users_own_needs_no_clock(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path
) -> None:
    """A sequence may order changes in another way than the source's clock."""
    folder = StreamFolder(tmp_path)
    pipeline = make_pipeline(session_lake, folder.path, sequence_columns={"users": "name"})

    def change(uuid: str, sequence: str, at_s: int) -> MadeEvent:
        return replace(user(uuid, "INSERT", 1, 1, sequence), at_s=at_s)

    folder.write([change("a", "2", 1), change("b", "1", DAY_S)])
    assert failed_checks(sync(pipeline, spark), spark) == {}
