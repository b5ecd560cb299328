"""The server that the demo's bank is on: the simulator, or Google's emulator."""

import json
import sys
import time
from contextlib import ExitStack
from enum import StrEnum
from typing import Final

from cdc_platform.demo.bank import BankSettings, create_bank
from cdc_platform.demo.emulator import open_emulator
from cdc_platform.demo.home import DemoHome
from cdc_platform.demo.processes import Children
from cdc_platform.errors import SetupError

BANK: Final = "bank"
SIMULATOR: Final = "simulator"
PARTITIONS: Final = 8
"""About how many change stream partitions of the simulator are alive."""
ANSWERS_WITHIN_S: Final = 600.0
"""A simulator that goes on makes all of its history again, at some ten thousand transactions a second."""


class DemoServer(StrEnum):
    """Server that stands in for Spanner."""

    SIMULATOR = "simulator"
    """The simulator, which is a part of the platform: the bank goes on when the demo is started again."""
    EMULATOR = "emulator"
    """Google's emulator, or the one that SPANNER_EMULATOR_HOST names; the bank is gone with it."""


def open_bank(
    server: DemoServer, stack: ExitStack, home: DemoHome, children: Children, rate: float, token_life_s: int
) -> BankSettings:
    """Return where the bank is, once its server answers.

    Raises:
        SetupError: The server is missing, or did not start.
    """
    if server is DemoServer.EMULATOR:
        bank = BankSettings(stack.enter_context(open_emulator(token_life_s)))
        create_bank(bank)
        return bank
    home.names.unlink(missing_ok=True)
    options = {"state": home.bank, "names": home.names, "rate": rate, "partition-life": token_life_s}
    command = [sys.executable, "-m", "cdc_platform.cli", "simulate", "--partitions", str(PARTITIONS)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    children.start(SIMULATOR, command)
    return _named_bank(home, children)


def start_writer(server: DemoServer, bank: BankSettings, children: Children, rate: float) -> None:
    """Let the bank work; the simulator's does so by itself."""
    if server is DemoServer.EMULATOR:
        command = [sys.executable, "-m", "cdc_platform.demo.bank", "--host", bank.host, "--rate", str(rate)]
        children.start(BANK, command)


def stop_writer(server: DemoServer, children: Children) -> str | None:
    """Let the bank rest, and return what it said at last; the simulator's works on."""
    if server is DemoServer.SIMULATOR:
        return None
    children.stop(BANK)
    return children.log_of(BANK).read_text(encoding="utf-8").splitlines()[-1]


def _named_bank(home: DemoHome, children: Children) -> BankSettings:
    deadline = time.monotonic() + ANSWERS_WITHIN_S
    while not home.names.exists():
        children.check()
        if time.monotonic() > deadline:
            raise SetupError(f"The simulator did not answer in time: {children.log_of(SIMULATOR)}")
        time.sleep(0.05)
    names = json.loads(home.names.read_text(encoding="utf-8"))
    return BankSettings(
        names["emulator_host"],
        names["project"],
        names["instance"],
        names["database"],
        names["change_stream"],
    )
