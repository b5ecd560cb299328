"""Another process builds on a commit while the catalog's answer to it is delayed, and then lost."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.cycle import finish_cycle, run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.publishing.maintain import maintain_lake
from cdc_platform_tests.pipeline.bank import bank_pipeline, busy, check_busy, wait
from cdc_platform_tests.servers.postgresql import Cluster, cluster, require_postgresql
from cdc_platform_tests.servers.rest_catalog import rest_catalog
from cdc_platform_tests.support.pipelines import log_rows, merging_by_spark, reading_by_spark, rows_of
from cdc_platform_tests.support.proxies.http_proxy import Fault, first, http_proxy
from cdc_platform_tests.support.proxies.tcp_proxy import Break, break_at, tcp_proxy
from cdc_platform_tests.support.sessions import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Step = Callable[[Pipeline, "SparkSession"], object]


@dataclass(frozen=True)
class DelayedAnswers:
    """A lake whose catalog's answer to a commit of Spark can be delayed and lost.

    Args:
        lake: the lake.
        lose: delays the answer to the next commit to a table while another process runs, and loses it.
        count: returns the number of lost answers.
    """

    lake: LakeSettings
    lose: Callable[[str, Callable[[], object]], None]
    count: Callable[[], int]


OpenLake = Callable[[Path], AbstractContextManager[DelayedAnswers]]


@contextmanager
def lake_on_postgresql(server: Cluster, folder: Path) -> Iterator[DelayedAnswers]:
    """Open a lake in a folder. Its connection ends after the commit, and Iceberg sends the commit again."""
    with tcp_proxy(server.port) as proxy:

        def lose(table: str, meanwhile: Callable[[], object]) -> None:
            # Java's statement that moves the table to its next metadata file.
            commit = rf"^(?!Q).*/{table}/metadata/.*metadata\.json.*metadata\.json"
            proxy.meanwhile, proxy.choose = meanwhile, break_at({1}, commit, Break.AFTER)

        uri = server.address().replace(f":{server.port}/", f":{proxy.port}/")
        lake = LakeSettings(str(folder / "lake"), {"type": "sql", "uri": uri})
        yield DelayedAnswers(lake, lose, lambda: proxy.broken)


@contextmanager
def lake_on_rest(uri: str, warehouse: Path, folder: Path) -> Iterator[DelayedAnswers]:
    """Open a lake in a folder. A gateway before its catalog sends the commit again, which is a conflict."""
    with http_proxy(uri) as proxy:

        def lose(table: str, meanwhile: Callable[[], object]) -> None:
            commit = first(f"/tables/{table}", b"add-snapshot", Fault.ANSWER_409)
            proxy.meanwhile, proxy.choose = meanwhile, commit

        catalog = {"type": "rest", "uri": proxy.address, "warehouse": warehouse.as_uri()}
        yield DelayedAnswers(LakeSettings(str(folder / "lake"), catalog), lose, proxy.counts.total)


@pytest.fixture(scope="module", params=["postgresql", "rest"])
def open_lake(request: pytest.FixtureRequest) -> Iterator[OpenLake]:
    """A catalog for the lakes of all cases."""
    # Another user runs PostgreSQL, who cannot look into the folders of a test.
    with TemporaryDirectory() as path, ExitStack() as stack:
        folder = Path(path)
        if request.param == "postgresql":
            server = stack.enter_context(cluster(require_postgresql(), folder / "cluster"))
            yield partial(lake_on_postgresql, server)
        else:
            uri = stack.enter_context(rest_catalog(folder))
            yield partial(lake_on_rest, uri, folder / "warehouse")


@dataclass(frozen=True)
class Case:
    """A step of which Spark commits to a table, and what another process does before the answer is lost."""

    table: str
    step: Step
    rival: Step


def next_cycle(pipeline: Pipeline, spark: "SparkSession") -> object:
    """Run a cycle with another account, which takes little of Spark."""
    wait(pipeline, 1)
    return run_cycle(pipeline, spark)


def next_by_spark(pipeline: Pipeline, spark: "SparkSession") -> object:
    """Run a cycle with another account that Spark reads, orders and merges."""
    return next_cycle(merging_by_spark(reading_by_spark(pipeline)), spark)


maintain: Final = partial(maintain_lake, thorough=True)
# The first two leave the small files that the others compact.
CASES: Final = {
    "log": Case(LOG, next_by_spark, finish_cycle),
    "table": Case("accounts", next_by_spark, finish_cycle),
    "compacted log": Case(LOG, maintain, next_cycle),
    "compacted table": Case("accounts", maintain, next_cycle),
}


def test_no_published_cut_needs_a_commit_whose_files_its_client_deletes(
    spark: "SparkSession", tmp_path: Path, open_lake: OpenLake
) -> None:
    """Iceberg's Java side takes the commit for refused; what the other process has published stays whole."""
    with open_lake(tmp_path) as answers:
        session, rival_session = session_of(spark, answers.lake), session_of(spark, answers.lake)
        pipeline = busy(bank_pipeline(answers.lake))
        for number, (name, case) in enumerate(CASES.items(), start=1):
            next_cycle(pipeline, session)
            answers.lose(case.table, partial(try_step, case.rival, pipeline, rival_session))
            failure = try_step(case.step, pipeline, session)
            assert (name, number) == (name, answers.count()), failure
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
