"""Another process builds on a commit while the catalog's answer to it is delayed, and then lost."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.pipeline.cycle import finish_cycle, run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform_tests.pipeline.bank import bank_pipeline, busy, check_busy, wait
from cdc_platform_tests.servers.postgresql import Cluster, cluster, require_postgresql
from cdc_platform_tests.support.pipelines import log_rows, merging_by_spark, reading_by_spark, rows_of
from cdc_platform_tests.support.proxies.tcp_proxy import Break, TcpProxy, break_at, tcp_proxy
from cdc_platform_tests.support.sessions import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Step = Callable[[Pipeline, "SparkSession"], object]


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A PostgreSQL for the catalogs of all cases."""
    # Another user runs the server, who cannot look into the folders of a test.
    with (
        TemporaryDirectory() as folder,
        cluster(require_postgresql(), Path(folder) / "cluster") as started,
    ):
        yield started


@pytest.fixture
def proxy(server: Cluster) -> Iterator[TcpProxy]:
    """A proxy between the lake of a case and its catalog."""
    with tcp_proxy(server.port) as running:
        yield running


@dataclass(frozen=True)
class Case:
    """A step of which Spark commits to a table, and what another process does before the answer is lost."""

    table: str
    step: Step
    rival: Step

    @property
    def commits(self) -> str:
        """Pattern of Java's statement that moves the table to its next metadata file."""
        return rf"^(?!Q).*/{self.table}/metadata/.*metadata\.json.*metadata\.json"


def next_cycle(pipeline: Pipeline, spark: "SparkSession") -> object:
    """Run a cycle with another account, which takes little of Spark."""
    wait(pipeline, 1)
    return run_cycle(pipeline, spark)


def next_by_spark(pipeline: Pipeline, spark: "SparkSession") -> object:
    """Run a cycle with another account that Spark reads, orders and merges."""
    return next_cycle(merging_by_spark(reading_by_spark(pipeline)), spark)


maintain: Final = partial(maintain_lake, thorough=True)
CASES: Final = {
    "log": Case(LOG, next_by_spark, finish_cycle),
    "table": Case("accounts", next_by_spark, finish_cycle),
    "compacted log": Case(LOG, maintain, next_cycle),
    "compacted table": Case("accounts", maintain, next_cycle),
}


def test_no_published_cut_needs_a_commit_whose_files_its_client_deletes(
    spark: "SparkSession", tmp_path: Path, server: Cluster, proxy: TcpProxy
) -> None:
    """Iceberg's Java side takes the commit for refused; what the other process has published stays whole."""
    uri = server.address().replace(f":{server.port}/", f":{proxy.port}/")
    lake = LakeSettings(str(tmp_path / "lake"), {"type": "sql", "uri": uri})
    session, rival_session = session_of(spark, lake), session_of(spark, lake)
    pipeline = busy(bank_pipeline(lake))
    for name, case in CASES.items():
        # Several small files, where they are compacted.
        for _ in range(3 if case.step is maintain else 1):
            next_cycle(pipeline, session)
        proxy.meanwhile = partial(try_step, case.rival, pipeline, rival_session)
        proxy.choose, proxy.broken = break_at({1}, case.commits, Break.AFTER), 0
        failure = try_step(case.step, pipeline, session)
        assert (name, 1) == (name, proxy.broken), failure
        assert failure is None or failure.retryable, failure
        check_cut(pipeline)
        revert_lost_commits(pipeline.lake)
    next_by_spark(pipeline, session)
    maintain(pipeline, session)
    check_cut(pipeline)
    check_busy(pipeline)


def try_step(step: Step, pipeline: Pipeline, spark: "SparkSession") -> CdcError | None:
    """Run a step, and return its error."""
    try:
        with reaching(pipeline.settings.lake):
            step(pipeline, spark)
    except CdcError as error:
        return error
    return None


def check_cut(pipeline: Pipeline) -> None:
    """Read every row of the newest cut, and of the log."""
    cut = newest_cut(pipeline.lake)
    assert cut is not None
    for name, snapshot_id in cut.tables.items():
        rows_of(pipeline, name, snapshot_id)
    log_rows(pipeline)
