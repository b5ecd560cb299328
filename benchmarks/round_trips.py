"""Requests of cycles to an object store or a catalog, and what each round trip costs.

`python -m benchmarks.round_trips [--of store|catalog] [--tables N]`. A pipeline has its lake on an S3 server,
or its tables in a REST catalog, behind a proxy that counts requests and, in every other cycle, answers each
one late, as a service in the same region does. At the end the tables must equal what the source has.
"""

import argparse
import shutil
import statistics
import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Final

from benchmarks.many_tables import ManyTables
from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.measure.tables import open_session
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.config import session_secrets
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.servers.object_store import BUCKET, object_store
from cdc_platform_tests.servers.rest_catalog import rest_catalog
from cdc_platform_tests.support.footprints.soak import Soak
from cdc_platform_tests.support.proxies.http_proxy import Request, http_proxy
from cdc_platform_tests.support.workloads.workload import WORKLOADS, Place

WARM_UP: Final = 4
"""Cycles after which Java has compiled most of what it runs."""


@dataclass
class Counting:
    """Counts requests to a service by method, and delays them.

    Args:
        delay_s: how long each request waits before the service gets it.
        counts: how many there were, by method.
    """

    delay_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def choose(self, request: Request) -> None:
        """Let a request pass."""
        with self._lock:
            self.counts[request.method] += 1
        time.sleep(self.delay_s)


def run(lake: LakeSettings, counting: Counting, folder: Path, options: argparse.Namespace) -> None:
    """Run cycles with and without a delay by turns, and report their requests and seconds."""
    report = Report("round_trips", options)
    settings = SparkSettings(driver_memory="2g", conf={"spark.ui.enabled": "false"})
    place = Place(folder / "source", lake, "counted", options.changes, options.seed)
    source = nullcontext(ManyTables(place, options.tables)) if options.tables else None
    with (
        open_session(settings, lake) as spark,
        source or WORKLOADS[options.workload](place, None) as workload,
    ):
        for name, value in session_secrets(settings, lake).items():
            spark.conf.set(name, value)
        soak, numbers = Soak(workload, spark), count(1)
        for _ in range(WARM_UP):
            soak.run_cycle(next(numbers))
        seconds: dict[float, list[float]] = {0.0: [], options.delay_s: []}
        requests = list[Counter[str]]()
        for _ in range(options.cycles):
            for delay_s, taken_s in seconds.items():
                counting.delay_s, counting.counts = delay_s, Counter()
                cycle = soak.run_cycle(next(numbers))
                taken_s.append(cycle.whole_s)
                requests.append(counting.counts)
        counting.delay_s = 0.0
        must_equal([], soak.faults(), "what is wrong at the end")
        soak.close()
    totals = [counts.total() for counts in requests]
    methods = {
        name: statistics.median(counts[name] for counts in requests) for name in sum(requests, Counter())
    }
    report.note("requests of a cycle", statistics.median(totals), "requests", most=max(totals), **methods)
    for delay_s, taken_s in seconds.items():
        report.note(f"cycle, delay {delay_s:g} s", statistics.median(taken_s), "s", cycles=len(taken_s))


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--of", choices=["store", "catalog"], default="store", help="what is asked")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="spanner", help="what is read")
    parser.add_argument("--tables", type=int, default=0, help="this many tables that all change, instead")
    parser.add_argument("--cycles", type=int, default=8, help="cycles with and without a delay")
    parser.add_argument("--delay-s", type=float, default=0.03, help="delay of each request")
    parser.add_argument("--changes", type=int, default=50, help="changes for a cycle, about")
    options = parser.parse_args()
    folder: Path = options.work / "round_trips"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    counting = Counting()
    with ExitStack() as services:
        if options.of == "catalog":
            proxy = services.enter_context(http_proxy(services.enter_context(rest_catalog(folder))))
            lake = LakeSettings(f"{folder}/warehouse", {"type": "rest", "uri": proxy.address})
        else:
            store = services.enter_context(object_store(folder))
            proxy = services.enter_context(http_proxy(store.endpoint))
            catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db?timeout=60"}
            lake = LakeSettings(f"s3://{BUCKET}/lake", catalog | store.properties(proxy.address))
        proxy.choose = counting.choose
        run(lake, counting, folder, options)


if __name__ == "__main__":
    main()
