"""Capture during a pipeline's cycles: the engine fills a spool, whose files are read like all others."""

import logging
from contextlib import suppress
from typing import Final

from cdc_platform.errors import SlotInUse
from cdc_platform.sources.debezium.engine.engine_process import EngineProcess, capture_until_caught_up
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput

LOGGER: Final = logging.getLogger(__name__)
CAUGHT_UP_WITHIN_S: Final = 600.0


class Capture:
    """The engine of one pipeline, in the process that runs its cycles.

    The first call captures everything committed before it. Then the engine keeps running, and the next cycles
    read what it has written.
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
            ended, self._engine = self._engine, None
            if ended.was_killed():
                LOGGER.warning("The engine's process was killed; it restarts and resumes where it stopped.")
            else:
                ended.wait()
        # If another program captures into the spool, its files are read as usual.
        with suppress(SlotInUse):
            capture_until_caught_up(self._settings, CAUGHT_UP_WITHIN_S)
            self._engine = EngineProcess(self._settings)

    def stop(self) -> None:
        """End the engine, if it runs."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.stop()
