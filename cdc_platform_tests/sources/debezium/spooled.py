"""The events of a spool; waiting for what an engine writes."""

import json
import time
from collections.abc import Callable
from typing import Any, Final

from cdc_platform.sources.debezium.engine.engine_process import EngineProcess
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput

WITHIN_S: Final = 60.0


def events_in(spool: Spool) -> list[dict[str, Any]]:
    """Return all events, and look whether their offsets are without gaps."""
    # Once: an engine that runs adds files.
    files = spool.files()
    events = [json.loads(line) for file in files for line in file.lines()]
    first = [json.loads(next(file.lines()))["offset"] for file in files]
    assert list(range(len(events))) == [event["offset"] for event in events]
    assert first == [file.first_offset for file in files]
    return events


def rows_in(spool: Spool) -> list[tuple[str, int | None, int | None]]:
    """Return op, key and old key of the changes of rows."""
    return [
        (
            event["value"]["op"],
            (event["key"] or {}).get("id"),
            event["headers"].get("__debezium.oldkey", {}).get("id"),
        )
        for event in events_in(spool)
        if event["value"] is not None and event["value"].get("op") in {"r", "c", "u", "d", "t"}
    ]


def capture_until_caught_up(settings: EngineInput, timeout_s: float) -> None:
    """Capture everything committed before the call, and end."""
    with EngineProcess(settings) as engine:
        engine.wait_until_caught_up(timeout_s)
        engine.stop()


def wait_until(is_so: Callable[[], bool], engine: EngineProcess) -> None:
    """Wait for something that a running engine brings about."""
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert engine.is_running()
        assert time.monotonic() < deadline
        time.sleep(0.02)
