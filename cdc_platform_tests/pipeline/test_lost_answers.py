"""Catalogs other than the default one make commits without confirming them: nothing is lost or doubled."""

from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.lake_settings import KEPT_BY_TIME, LakeSettings
from cdc_platform.pipeline import cycle_loop
from cdc_platform.pipeline.cycle_loop import follow_source
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform_tests.pipeline.bank import bank_pipeline, busy, check_busy, wait
from cdc_platform_tests.servers.postgresql import cluster, require_postgresql
from cdc_platform_tests.servers.rest_catalog import rest_catalog
from cdc_platform_tests.support.pipelines import found_table, merging_by_spark, reading_by_spark
from cdc_platform_tests.support.proxies.http_proxy import Fault, every, http_proxy
from cdc_platform_tests.support.proxies.tcp_proxy import Break, act_at, break_at, tcp_proxy
from cdc_platform_tests.support.sessions import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

COMMITS: Final = r"^(?!Q).*metadata\.json.*metadata\.json|^Q.{4}COMMIT"
"""Statements that move a table from one metadata file to another: Java's, and the end of Python's."""
LOST: Final = frozenset({2, 5, 11, 18, 26, 35, 45})
"""Turns of commits whose answers are lost: ever further apart, so that cycles come to their end."""
UNKNOWN: Final = (Fault.ANSWER_409, Fault.LOSE_ANSWER, Fault.ANSWER_500, Fault.ANSWER_409, Fault.ANSWER_504)
CYCLES: Final = 2


def follow(
    pipeline: Pipeline, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, cycles: int = CYCLES
) -> list[CdcError]:
    """Run cycles, of which each opens an account, and return what failed on the way."""
    errors: list[CdcError] = []
    monkeypatch.setattr(cycle_loop, "pause", lambda *_: wait(pipeline, 1))
    wait(pipeline, 1)
    for _ in islice(follow_source(busy(pipeline), spark, lambda: True, errors.append), cycles):
        wait(pipeline, 1)
    return errors


def check_catalog(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Check what cycles have left, and that maintenance and the declarations of tables reach the catalog."""
    check_busy(pipeline)
    maintain_lake(pipeline, spark, thorough=True)
    check_busy(pipeline)
    accounts = found_table(pipeline, "accounts")
    assert accounts.schema().identifier_field_names() == {"id"}
    assert KEPT_BY_TIME.items() <= accounts.properties.items()


def test_postgresql_loses_the_answers_to_commits_restarts_and_is_locked(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's Java side deletes the files of a commit that it sends again; the platform makes it again.

    Spark's JDBC catalog and pyiceberg's SQL catalog share one database. A server that restarts, or whose
    catalog somebody locks, in the middle of a cycle delays it only.
    """
    # Another user runs the server, who cannot look into the folders of a test.
    with (
        TemporaryDirectory() as folder,
        cluster(require_postgresql(), Path(folder) / "cluster") as server,
        tcp_proxy(server.port) as proxy,
    ):
        uri = server.address().replace(f":{server.port}/", f":{proxy.port}/")
        lake = LakeSettings(str(tmp_path / "lake"), {"type": "sql", "uri": uri})
        session, pipeline = session_of(spark, lake), merging_by_spark(reading_by_spark(bank_pipeline(lake)))
        _ = pipeline.lake.catalog
        proxy.choose = break_at(LOST, COMMITS, Break.AFTER)
        errors = follow(pipeline, session, monkeypatch)
        proxy.choose = lambda _text: None
        assert proxy.broken >= 2
        assert all(error.retryable for error in errors)
        for harm in (server.restart, lambda: server.lock("iceberg_tables", 1)):
            proxy.choose = act_at({3}, COMMITS, harm)
            errors = follow(pipeline, session, monkeypatch, 1)
            assert all(error.retryable for error in errors)
        proxy.choose = lambda _text: None
        check_catalog(pipeline, session)


def test_a_rest_catalog_does_not_say_what_it_did(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that are lost, and errors after the commit, are tried again from what is there.

    Iceberg's own REST test server decides on commits.
    """
    (tmp_path / "rest").mkdir()
    with rest_catalog(tmp_path / "rest") as uri, http_proxy(uri) as proxy:
        place = (tmp_path / "rest" / "warehouse").as_uri()
        lake = LakeSettings(
            str(tmp_path / "lake"), {"type": "rest", "uri": proxy.address, "warehouse": place}
        )
        session, pipeline = session_of(spark, lake), bank_pipeline(lake)
        _ = pipeline.lake.catalog
        proxy.choose = every(11, "/tables/", (*UNKNOWN, Fault.REFUSE_503, Fault.REFUSE_429, Fault.REFUSE_500))
        errors = follow(pipeline, session, monkeypatch)
        proxy.choose = lambda _request: None
        assert proxy.counts.total() >= 2
        assert all(error.retryable for error in errors)
        check_catalog(pipeline, session)
