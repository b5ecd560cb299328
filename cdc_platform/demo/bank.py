"""The demo's bank: a simulated Spanner that books transfers continuously."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from cdc_platform.demo.home import ACCOUNTS, DemoHome
from cdc_platform.demo.processes import Children
from cdc_platform.errors import SetupError
from cdc_platform.simulator.wire.simulator_settings import RETENTION_S
from cdc_platform.sources.spanner.client.client import SpannerClient
from cdc_platform.sources.spanner.client.query import Query
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings

SIMULATOR: Final = "simulator"
PARTITIONS: Final = 8
"""Approximate number of live change stream partitions of the simulator."""
ANSWERS_WITHIN_S: Final = 600.0
"""A resumed simulator regenerates its whole history, at about ten thousand transactions a second."""


def open_bank(home: DemoHome, children: Children, rate: float, partition_life_s: int) -> dict[str, str]:
    """Start the simulator with the history in the home, and return the names to connect with.

    A history that its change stream no longer keeps is removed, so that another bank begins.

    Raises:
        SetupError: the simulator did not start, or did not answer in time.
    """
    # The simulator writes the file again and again while the bank is open.
    if home.bank.exists() and time.time() - home.bank.stat().st_mtime > RETENTION_S:
        home.bank.unlink()
    home.names.unlink(missing_ok=True)
    options = {"state": home.bank, "names": home.names, "rate": rate, "partition-life": partition_life_s}
    command = [sys.executable, "-m", "cdc_platform.cli", "simulate", "--partitions", str(PARTITIONS)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    children.start(SIMULATOR, command)
    deadline = time.monotonic() + ANSWERS_WITHIN_S
    while not home.names.exists():
        children.check()
        if time.monotonic() > deadline:
            raise SetupError(f"The simulator did not answer in time; see {children.log_of(SIMULATOR)}")
        time.sleep(0.05)
    names: dict[str, str] = json.loads(home.names.read_text(encoding="utf-8"))
    return names


def sum_of_balances(names: Mapping[str, str]) -> int:
    """Return the sum of all balances by a strong read."""
    place = names["project"], names["instance"], names["database"], names["change_stream"]
    settings = SpannerSettings(*place, emulator_host=names["emulator_host"])
    with closing(SpannerClient(settings)) as client:
        [(total,)] = client.fetch_texts(Query(f"SELECT SUM(balance) FROM {ACCOUNTS}"))
    return int(total or 0)
