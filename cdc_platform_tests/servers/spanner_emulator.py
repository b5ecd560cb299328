"""Finds Google's Spanner emulator on this machine, starts it and stops it."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cdc_platform.demo.processes import LOOPBACK, answers, end_process, free_port
from cdc_platform.errors import SetupError
from cdc_platform.sources.spanner.spanner_settings import EMULATOR_VARIABLE

PROGRAM_VARIABLE: Final = "CDC_PLATFORM_SPANNER_EMULATOR"
"""Environment variable with the path of `emulator_main`."""
PROGRAM: Final = "emulator_main"

_READY_WITHIN_S: Final = 20.0
_STOP_WITHIN_S: Final = 5.0
_PORT_ATTEMPTS: Final = 3
_PROBE_S: Final = 5.0
_SET_PARENT_DEATH_SIGNAL: Final = 1


class EmulatorMissing(SetupError):
    """No Spanner emulator was found."""


def find_emulator(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the emulator's program.

    Raises:
        EmulatorMissing: It is in none of the places; the message names the ways to get it.
    """
    for candidate in _candidates(environment):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    program = environment.get(PROGRAM_VARIABLE)
    raise EmulatorMissing(
        (f"{PROGRAM_VARIABLE} names no program that can be run: {program}. " if program else "")
        + "No Spanner emulator was found. Either run `gcloud components install cloud-spanner-emulator` "
        "(with gcloud from a package manager: install its package google-cloud-cli-spanner-emulator), "
        f"or set {PROGRAM_VARIABLE} to the path of `{PROGRAM}` or put it on the PATH, "
        f"or start one anywhere and set {EMULATOR_VARIABLE} to its address, such as localhost:9010",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get(PROGRAM_VARIABLE):
        yield Path(environment[PROGRAM_VARIABLE])
        return
    search_path = environment.get("PATH", "")
    on_path = shutil.which(PROGRAM, path=search_path)
    if on_path is not None:
        yield Path(on_path)
    gcloud = shutil.which("gcloud", path=search_path)
    if gcloud is not None:
        yield Path(gcloud).resolve().parent / "cloud_spanner_emulator" / PROGRAM


@contextmanager
def open_emulator(
    token_life_s: int | None = None, environment: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """Yield the address of an emulator: the one that the environment names, else a new one.

    Raises:
        EmulatorMissing: There is neither, or the one that is named does not answer.
    """
    if host := environment.get(EMULATOR_VARIABLE):
        _probe(host)
        yield host
        return
    with Emulator(find_emulator(environment), token_life_s) as emulator:
        yield emulator.host


def _probe(host: str) -> None:
    """Fail at once: Google's client would try for a while, and end in a traceback."""
    try:
        name, _, port = host.rpartition(":")
        socket.create_connection((name, int(port)), _PROBE_S).close()
    except (OSError, ValueError) as error:
        raise EmulatorMissing(
            f"No Spanner emulator answers at the address in {EMULATOR_VARIABLE}, which is {host} ({error}). "
            "Start one there, or unset the variable to have one started.",
        ) from error


@dataclass
class Emulator:
    """One emulator of our own on an ephemeral port of loopback, without anything persistent.

    Change stream partitions live between `token_life_s` and twice as long; 20 s if it is not given.
    The process ends with the context, and on Linux also when the thread that started it dies.
    """

    program: Path
    token_life_s: int | None = None
    host: str = field(default="", init=False)
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False, repr=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            EmulatorMissing: The program does not start, or its port went to another process each time.
        """
        output = ""
        for _ in range(_PORT_ATTEMPTS):
            port = free_port()
            with tempfile.TemporaryFile() as log:
                self._process = self._spawn(port, log.fileno())
                if _wait_for(self._process, port):
                    self.host = f"{LOOPBACK}:{port}"
                    return
                self.stop()
                log.seek(0)
                output = log.read().decode(errors="replace").strip()[-500:]
        raise EmulatorMissing(f"The Spanner emulator `{self.program}` does not start. It said: {output}")

    def stop(self) -> None:
        """End the process; stopping twice is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        end_process(process, _STOP_WITHIN_S)

    def _spawn(self, port: int, log: int) -> "subprocess.Popen[bytes]":
        command = [str(self.program), f"--host_port={LOOPBACK}:{port}"]
        if self.token_life_s is not None:
            command.append(f"--override_change_stream_partition_token_alive_seconds={self.token_life_s}")
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - one prctl call; takes no lock of ours
        )


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _wait_for(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Return whether the process itself answers on the port."""
    give_up_at_s = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < give_up_at_s and process.poll() is None:
        if answers(port):
            return _owns_port(process.pid, port)
        time.sleep(0.02)
    return False


def _owns_port(pid: int, port: int) -> bool:
    # gRPC servers share a port silently and split its traffic: who listens must be checked.
    tables = [table for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if table.exists()]
    if not tables:
        return True
    listening = "0A"
    rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == listening}
    return bool(inodes) and inodes <= _socket_inodes(pid)


def _socket_inodes(pid: int) -> set[str]:
    links = (_target(entry) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:
        return ""
