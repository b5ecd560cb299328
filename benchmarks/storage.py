"""Storage that fails: cycles of a pipeline whose object store, SQL catalog or REST catalog breaks by dice.

`s3` is an S3 server behind a proxy that delays answers, gives them when the client has asked again, refuses
requests (500, 503), cuts answers short, and does what is asked without answering. `postgresql` is a SQL
catalog whose connections break before and after statements, among them COMMIT, that restarts, and that
somebody else locks. `rest` is a REST catalog whose commits are answered by 409, 429, 500, 503 and 504, some
after they were made. At the end storage is sound: the pipeline catches up, the tables must equal what the
source has, and every check must pass.
"""

import argparse
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.measure.tables import open_session
from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.spark.launch.config import session_secrets
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.servers.object_store import BUCKET, object_store
from cdc_platform_tests.servers.postgresql import Cluster, cluster, require_postgresql
from cdc_platform_tests.servers.rest_catalog import rest_catalog
from cdc_platform_tests.support.footprints.soak import Soak
from cdc_platform_tests.support.proxies.http_proxy import (
    Choice,
    Fault,
    HttpProxy,
    Request,
    http_proxy,
    seldom,
)
from cdc_platform_tests.support.proxies.tcp_proxy import Break, TcpProxy, tcp_proxy
from cdc_platform_tests.support.workloads.workload import WORKLOADS, Place

CLIENT_TIMEOUT_S: Final = 2
LOCKED_S: Final = 3.0
STORE_FAULTS: Final = (
    *(Fault.DELAY, Fault.LATE, Fault.REFUSE_500, Fault.REFUSE_503, Fault.CUT),
    *(Fault.LOSE_ANSWER, Fault.ANSWER_500),
)
CATALOG_FAULTS: Final = (
    *(Fault.REFUSE_409, Fault.REFUSE_429, Fault.REFUSE_500, Fault.REFUSE_503),
    *(Fault.LOSE_ANSWER, Fault.ANSWER_409, Fault.ANSWER_500, Fault.ANSWER_504),
)


@dataclass(frozen=True)
class Storage:
    """A lake on storage that can fail.

    Args:
        lake: the lake.
        fail: lets it fail from now on.
        mend: lets it be sound from now on.
        counts: how often it has failed so far, by what happened.
        between: what is done to it between two cycles, by the number of the cycle.
    """

    lake: LakeSettings
    fail: Callable[[], None]
    mend: Callable[[], None]
    counts: Callable[[], Mapping[str, int]]
    between: Callable[[int], None] = lambda _cycle: None


def _behind_http(proxy: HttpProxy, lake: LakeSettings, choice: Choice, faults: Sequence[Fault]) -> Storage:
    def choose(choice: Choice) -> None:
        proxy.choose = choice

    counts = {fault.value: 0 for fault in faults}
    return Storage(
        lake,
        lambda: choose(choice),
        lambda: choose(lambda _request: None),
        lambda: counts | {fault.value: count for fault, count in proxy.counts.items()},
    )


@contextmanager
def _s3(folder: Path, options: argparse.Namespace) -> Iterator[Storage]:
    with object_store(folder) as store, http_proxy(store.endpoint) as proxy:
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db?timeout=60",
            **store.properties(proxy.address),
            "s3.request-timeout": str(CLIENT_TIMEOUT_S),
            "http-client.apache.socket-timeout-ms": str(CLIENT_TIMEOUT_S * 1000),
        }
        lake = LakeSettings(f"s3://{BUCKET}/lake", catalog)
        yield _behind_http(proxy, lake, seldom(options.seed, options.share, STORE_FAULTS), STORE_FAULTS)


@contextmanager
def _rest(folder: Path, options: argparse.Namespace) -> Iterator[Storage]:
    with rest_catalog(folder) as uri, http_proxy(uri) as proxy:
        place = (folder / "warehouse").as_uri()
        lake = LakeSettings(str(folder), {"type": "rest", "uri": proxy.address, "warehouse": place})
        dice = seldom(options.seed, options.share, CATALOG_FAULTS)

        def choose(request: Request) -> Fault | None:
            return dice(request) if request.method == "POST" and "/tables/" in request.path else None

        yield _behind_http(proxy, lake, choose, CATALOG_FAULTS)


@contextmanager
def _postgresql(folder: Path, options: argparse.Namespace) -> Iterator[Storage]:
    # Another user runs the server, who cannot look into the folder of the benchmark.
    with (
        TemporaryDirectory() as own,
        cluster(require_postgresql(), Path(own) / "cluster") as server,
        tcp_proxy(server.port) as proxy,
    ):
        uri = server.address().replace(f":{server.port}/", f":{proxy.port}/")
        database = _Database(server, proxy, random.Random(options.seed), options.share)  # noqa: S311  no secret
        yield Storage(
            LakeSettings(str(folder / "lake"), {"type": "sql", "uri": uri}),
            database.fail,
            database.mend,
            lambda: database.counts,
            database.harm,
        )


@dataclass
class _Database:
    """A catalog's PostgreSQL that breaks connections, restarts, and is locked."""

    server: Cluster
    proxy: TcpProxy
    dice: random.Random
    share: float
    harms: list[str] = field(default_factory=list)
    """What happens at the next commit."""
    counts: Counter[str] = field(default_factory=Counter)

    def fail(self) -> None:
        self.proxy.choose = self._choose

    def mend(self) -> None:
        self.proxy.choose = lambda _text: None

    def _choose(self, text: str) -> Break | None:
        if self.harms and "COMMIT" in text:
            self._harm(self.harms.pop())
        if "iceberg_tables" not in text and "metadata.json" not in text and "COMMIT" not in text:
            return None
        if self.dice.random() >= self.share:
            return None
        how: Break = self.dice.choice([*Break])
        self.counts[f"connection lost {how.value} a statement"] += 1
        return how

    def harm(self, cycle: int) -> None:
        """Let the server restart within the cycle, or somebody lock its table, or neither, by turns."""
        if cycle % 3:
            self.harms.append("restart" if cycle % 3 == 1 else "lock")

    def _harm(self, what: str) -> None:
        self.counts[what] += 1
        if what == "restart":
            self.server.restart()
        else:
            self.server.lock("iceberg_tables", LOCKED_S)


STORAGES: Final[Mapping[str, Callable[[Path, argparse.Namespace], AbstractContextManager[Storage]]]] = {
    "s3": _s3,
    "postgresql": _postgresql,
    "rest": _rest,
}


@dataclass
class Recoveries:
    """Tries of cycles that failed, and how long it took until the next one was whole."""

    errors: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    begun_s: float | None = None

    def add(self, error: CdcError) -> None:
        """Count a failed try."""
        print(f"    {type(error).__name__}: {str(error)[:160]}", flush=True)
        self.errors[type(error).__name__] += 1
        self.begun_s = self.begun_s or time.monotonic()

    def end(self) -> None:
        """Note that a cycle was whole."""
        if self.begun_s is not None:
            self.seconds.append(time.monotonic() - self.begun_s)
            self.begun_s = None


def run(storage: Storage, folder: Path, options: argparse.Namespace, report: Report) -> None:
    """Run cycles while storage fails, catch up, and report that nothing was lost or doubled."""
    place = Place(folder / "source", storage.lake, "failing", options.changes, options.seed)
    settings = SparkSettings(driver_memory="2g", conf={"spark.ui.enabled": "false"})
    recoveries = Recoveries()
    with open_session(settings, storage.lake) as spark, WORKLOADS[options.workload](place, None) as workload:
        for name, value in session_secrets(settings, storage.lake).items():
            spark.conf.set(name, value)
        soak = Soak(workload, spark, recoveries.add, takes_turns=True)
        end_s = time.monotonic() + options.minutes * 60
        number = 0
        while time.monotonic() < end_s:
            number += 1
            # Every cycle begins with sound storage: a fault that comes with it is one of many anyway.
            storage.fail()
            storage.between(number)
            cycle = soak.run_cycle(number)
            recoveries.end()
            print(f"  cycle {number}: {cycle.whole_s:.1f} s, {cycle.changes} changes", flush=True)
        storage.mend()
        must_equal([], soak.faults(), "what is wrong at the end")
        changes = soak.pipeline.lake.system_table(LOG).scan().count()
        soak.close()
    counts = {name.replace(" ", "_"): count for name, count in storage.counts().items()}
    must_equal(True, any(counts.values()), "whether the storage failed at all")
    # A kind of fault with 0 has not been tried: a longer run or a larger share brings it.
    report.note(f"{options.storage}: faults injected", sum(counts.values()), "faults", **counts)
    report.note(f"{options.storage}: changes, none lost or doubled", changes, "changes", cycles=number)
    failed = recoveries.errors
    report.note(f"{options.storage}: tries of cycles that failed", failed.total(), "tries", **failed)
    report.note(f"{options.storage}: longest recovery", max(recoveries.seconds, default=0.0), "s")


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--storage", choices=list(STORAGES), default="s3", help="what fails")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="spanner", help="what is read")
    parser.add_argument("--minutes", type=float, default=60, help="how long it fails")
    parser.add_argument("--share", type=float, default=0.02, help="share of the requests that fail")
    parser.add_argument("--changes", type=int, default=50, help="changes for a cycle, about")
    options = parser.parse_args()
    report = Report("storage", options)
    folder: Path = options.work / "storage" / options.storage
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with STORAGES[options.storage](folder, options) as storage:
        run(storage, folder, options, report)


if __name__ == "__main__":
    main()
