"""Capturing while a pipeline reads: the engine fills a spool, whose files are read like any others."""

import logging
from contextlib import suppress
from typing import Final

from cdc_platform.errors import SlotInUse
from cdc_platform.sources.debezium.engine.engine_process import EngineProcess, capture_until_caught_up
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput

LOGGER: Final = logging.getLogger(__name__)
CAUGHT_UP_WITHIN_S: Final = 600.0


class Capture:
    """The engine of one pipeline, in whichever process runs its cycles.

    The first call captures everything that has committed before it; then the engine goes on by itself, and
    what it has written is there for the next cycles.
    """

    def __init__(self, settings: EngineInput) -> None:
        self._settings = settings
        self._engine: EngineProcess | None = None

    def keep_going(self) -> None:
        """Make sure that the spool is being filled.

        One that was killed is started again.

        Raises:
            CdcError: why the engine has ended; what it has captured stays, and the next call goes on.
        """
        if self._engine is not None and self._engine.is_running():
            return
        if self._engine is not None:
            ended, self._engine = self._engine, None
            if ended.was_killed():
                LOGGER.warning("The engine's process was killed; it is started again where it was.")
            else:
                ended.wait()
        # Where another program captures into the spool, its files are read all the same.
        with suppress(SlotInUse):
            capture_until_caught_up(self._settings, CAUGHT_UP_WITHIN_S)
            self._engine = EngineProcess(self._settings)

    def stop(self) -> None:
        """End the engine, if it runs."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.stop()
