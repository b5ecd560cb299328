"""The embedded engine as a child process: its start, its end and its failures, and capture during cycles."""

import errno
import json
import logging
import os
import selectors
import subprocess
import sys
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cdc_platform import errors
from cdc_platform.errors import (
    CaptureStopped,
    CdcError,
    DiskFull,
    SettingError,
    SetupError,
    SlotInUse,
    SourceError,
    SourceUnreachable,
)
from cdc_platform.private_files import open_private
from cdc_platform.sources.debezium.engine.batches import CAUGHT_UP, is_progress
from cdc_platform.sources.debezium.engine.engine import Order
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.engine.spool_files import reported_as_unusable
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput

PROGRAM: Final = "cdc_platform.sources.debezium.engine.engine"
STOP_WITHIN_S: Final = 60.0
TAIL_LINES: Final = 15


class EngineProcess:
    """A running engine, which ends with the context and with the process that started it."""

    def __init__(self, settings: EngineInput) -> None:
        self.spool, self._topic_prefix = Spool(settings.folder()), settings.topic_prefix
        with reported_as_unusable(self.spool.folder):
            self.spool.make_folder()
            self.spool.failure.unlink(missing_ok=True)
            self._error_log = self.spool.folder / "engine.err"
            report, report_to = os.pipe()
            self._report = os.fdopen(report, "rb", buffering=0)
            with os.fdopen(report_to, "wb"), open_private(self._error_log, "wb") as error_log:
                self._process = subprocess.Popen(  # noqa: S603  our own program
                    [sys.executable, "-m", PROGRAM],
                    stdin=subprocess.PIPE,
                    stdout=error_log,
                    stderr=error_log,
                    # Signals to the terminal's group are for the parent process; the engine ends after it.
                    start_new_session=True,
                    umask=0o077,
                    pass_fds=(report_to,),
                )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            order = Order(settings, report_to)
            self._process.stdin.write(order.to_json().encode() + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def is_running(self) -> bool:
        """Return whether the engine is running."""
        return self._process.poll() is None

    def was_killed(self) -> bool:
        """Return whether a signal ended the engine before it could report a failure."""
        code = self._process.poll()
        return code is not None and code < 0 and not self.spool.failure.exists()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the engine has ended.

        Raises:
            CdcError: the failure of the engine; the spool is complete, and a new start resumes.
            SourceUnreachable: the engine has not ended in time, and keeps running.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise self._not_caught_up(timeout_s) from error
        if code != 0:
            raise self._failure(code)

    def wait_until_caught_up(self, timeout_s: float) -> None:
        """Wait until everything committed before the start is in the spool; the engine keeps running.

        A snapshot of a large database takes hours, and would begin again if it was interrupted.

        Args:
            timeout_s: seconds to wait without other events than the engine's own markers.

        Raises:
            CdcError: the failure of the engine; the spool is complete, and a new start resumes.
            SourceUnreachable: no event has arrived in this time; the engine keeps running.
        """
        offset = self.spool.next_offset()
        with self._report, selectors.DefaultSelector() as selector:
            selector.register(self._report, selectors.EVENT_READ)
            while not selector.select(timeout_s):
                files = [file for file in self.spool.files(offset) if file.next_offset > offset]
                lines = chain.from_iterable(file.lines() for file in files)
                if not any(is_progress(line, self._topic_prefix) for line in lines):
                    raise self._not_caught_up(timeout_s)
                offset = files[-1].next_offset
            has_caught_up = self._report.read(len(CAUGHT_UP)) == CAUGHT_UP
        if not has_caught_up:
            self.wait(STOP_WITHIN_S)

    def stop(self) -> None:
        """Stop the engine and wait for its end; unacknowledged events come again.

        Raises:
            CdcError: the engine had failed before.
        """
        self._process.terminate()
        try:
            self.wait(STOP_WITHIN_S)
        except SourceUnreachable:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running():
            with suppress(CdcError):
                self.stop()
        self._report.close()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _not_caught_up(self, timeout_s: float | None) -> SourceUnreachable:
        return SourceUnreachable(
            f"The engine has not caught up, and sent nothing for {timeout_s or 0:g} s; it resumes from there "
            f"when it is started again. Log: {self.spool.log}"
        )

    def _failure(self, code: int) -> CdcError:
        if code == errno.ENOSPC:
            return DiskFull(f"{os.strerror(code)}: {self.spool.folder}")
        if self.spool.failure.exists():
            return read_failure(self.spool.failure)
        lines = self._error_log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return CaptureStopped(
            f"The engine's process has ended ({code}) without a reason; it resumes from there when it is "
            f"started again. Log: {self.spool.log}\n" + "\n".join(lines)
        )


def read_failure(path: Path) -> CdcError:
    """Return the failure of an engine from its spool's `failure.json`."""
    failure = json.loads(path.read_text(encoding="utf-8"))
    kind = getattr(errors, failure["error"], None)
    if kind is SettingError:
        return SettingError(failure["setting"], failure["problem"])
    if isinstance(kind, type) and issubclass(kind, SetupError | SourceError):
        return kind(failure["message"])
    return CaptureStopped(failure["message"])


LOGGER: Final = logging.getLogger(__name__)
CAUGHT_UP_WITHIN_S: Final = 600.0


class Capture:
    """The engine of one pipeline, in the process that runs its cycles.

    The first call waits until everything committed before it has been captured. The engine keeps running, and
    the next cycles read what it has written.
    """

    def __init__(self, settings: EngineInput) -> None:
        self._settings = settings
        self._engine: EngineProcess | None = None

    def ensure_running(self) -> None:
        """Ensure that the spool is being filled, and restart an engine that was killed.

        Raises:
            CdcError: the failure that ended the engine; captured events stay, and the next call resumes.
        """
        if self._engine is not None and self._engine.is_running():
            return
        if self._engine is not None:
            engine, self._engine = self._engine, None
            if engine.was_killed():
                LOGGER.warning("The engine's process was killed; it restarts and resumes where it stopped.")
            else:
                engine.wait()
        try:
            with ExitStack() as end:
                starting = end.enter_context(EngineProcess(self._settings))
                starting.wait_until_caught_up(CAUGHT_UP_WITHIN_S)
                end.pop_all()
                self._engine = starting
        except SlotInUse:
            # If another program captures into the spool, its files are read as usual.
            if not Spool(self._settings.folder()).has_writer():
                raise

    def stop(self) -> None:
        """End the engine, if it runs."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.stop()
