"""Sinks of a connector other than a folder: the topics of a private broker, and the spool of an engine."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc_platform.sources.debezium.engine.spool import Spool, SpoolWriter
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform_tests.servers.kafka import broker
from cdc_platform_tests.support.crash_points.local_files import watched
from cdc_platform_tests.support.debezium.workload import Outlet, Topics
from cdc_platform_tests.support.workloads.workload import Place

BATCHES: Final = 3
"""An engine writes what comes with one cycle to so many files."""


@dataclass(frozen=True)
class SpoolFiles:
    """The spool of an engine, which this process writes in the place of the engine.

    Args:
        settings: of the pipeline.
        spool: the spool.
        sent: folder with each file that was written.
        writer: of the spool.
    """

    settings: EngineInput
    spool: Spool
    sent: Path
    writer: SpoolWriter

    def open(self) -> EngineInput:
        """Return the pipeline's settings for it."""
        return self.settings

    def write(self, lines: Sequence[str], cycle: int) -> None:  # noqa: ARG002  a batch has a file
        """Write messages as batches."""
        self._put_back()
        size = len(lines) // BATCHES + 1
        for first in range(0, len(lines), size):
            file = self.writer.write([*map(_event, lines[first : first + size])], time.time_ns() // 1_000_000)
            os.link(file, self.sent / file.name)

    def _put_back(self) -> None:
        """Add what was written after the state to which the lake was set back: input is never set back."""
        newest = max((file.first_offset for file in self.spool.files()), default=-1)
        for file in Spool(self.sent).files():
            if file.first_offset > newest:
                os.link(file.path, self.spool.folder / file.path.name)


def _event(line: str) -> str:
    message = json.loads(line)
    return json.dumps({name: message.get(name) for name in ("topic", "key", "value", "headers")})[1:-1]


@contextmanager
def spool(place: Place) -> Iterator[Outlet]:
    """Provide a spool within the lake's folder, so that it is kept and set back with it.

    The pipeline finds the spool locked, as if another program captured into it. It deletes each file that the
    lake has, and each effect that it has there is a crash point.
    """
    folder = Path(place.lake.path) / "spool"
    settings = EngineInput("unused", "unused", "unused", str(folder), topic_prefix=place.name, keep_spool_s=0)
    place.folder.mkdir()
    own = Spool(folder)
    with watched(folder), own.open_writer(settings.identity()) as writer:
        yield SpoolFiles(settings, own, place.folder, writer)


@contextmanager
def topics(place: Place) -> Iterator[Outlet]:
    """Provide the topics of a private broker; only the lake has a reader's offsets."""
    with broker(place.folder) as private:
        yield Topics(private, place.name)
