"""The engine that the capture is compared with."""

import sys
from types import SimpleNamespace

import pytest

from benchmarks.capture import drop_events
from benchmarks.measure.harness import ResultDiffers


def test_an_engine_that_ends_before_it_has_all_changes_stops_the_benchmark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its library logs the failure and returns, so the shorter run would count."""
    ended = SimpleNamespace(run=lambda: None, close=lambda: None)
    library = SimpleNamespace(BasePythonChangeHandler=object, DebeziumJsonEngine=lambda *_: ended)
    monkeypatch.setitem(sys.modules, "pydbzengine", library)
    with pytest.raises(ResultDiffers, match="changes"):
        drop_events({}, 10)
