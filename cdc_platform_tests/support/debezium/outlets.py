"""Sinks of a connector other than a folder: the topics of a private broker, and the spool of an engine."""

import json
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
    """The spool of an engine, which this process writes in the place of the engine."""

    settings: EngineInput
    writer: SpoolWriter

    def open(self) -> EngineInput:
        """Return the pipeline's settings for it."""
        return self.settings

    def write(self, lines: Sequence[str], cycle: int) -> None:  # noqa: ARG002  a batch has a file
        """Write messages as batches."""
        size = len(lines) // BATCHES + 1
        for first in range(0, len(lines), size):
            self.writer.write([*map(_event, lines[first : first + size])], time.time_ns() // 1_000_000)


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
    with watched(folder), Spool(folder).open_writer(settings.identity()) as writer:
        yield SpoolFiles(settings, writer)


@contextmanager
def topics(place: Place) -> Iterator[Outlet]:
    """Provide the topics of a private broker; only the lake has a reader's offsets."""
    with broker(place.folder) as private:
        yield Topics(private, place.name)
