"""Concurrent reading of several pipelines for their page and their metrics."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from cdc_platform.dashboard.facts import PipelineFacts, PipelineHistory, UnreadablePipeline, WatchedPipeline
from cdc_platform.dashboard.metrics import PipelineCollector
from cdc_platform.dashboard.page import PageOptions, PipelineView, write_page
from cdc_platform.model.base.quantities import as_duration
from cdc_platform.model.base.timestamps import clock_micros

KEPT_S: Final = 2.0
"""Time for which results are cached, so that many readers cost no more than one."""
PATIENCE_S: Final = 5.0
"""Timeout for a lake; the page then shows the other pipelines and reports this one as silent."""
Answer = TypeVar("Answer")
SHOWN_LATE_S: Final = 60.0
"""Time for which an answer that came after its page is still shown."""
_View = tuple[PipelineFacts | UnreadablePipeline, PipelineHistory | UnreadablePipeline | None]


class _Reading(Generic[Answer]):
    """A read in a daemon thread, which does not keep the process alive."""

    def __init__(self, reader: Callable[[], Answer]) -> None:
        self.begun_s = self._ended_s = time.monotonic()
        self._read = reader
        self._answers: list[Answer] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        answer = self._read()
        self._ended_s = time.monotonic()
        self._answers.append(answer)

    def wait(self, until_s: float) -> list[Answer]:
        """Return the answer, or nothing if there is none until a time of the monotonic clock."""
        self._thread.join(max(0.0, until_s - time.monotonic()))
        return self._answers

    @property
    def late_answers(self) -> list[Answer]:
        """The answer, if it came recently."""
        return self._answers if time.monotonic() - self._ended_s <= SHOWN_LATE_S else []

    @property
    def is_running(self) -> bool:
        """Whether there is no answer yet."""
        return self._thread.is_alive()


class Readings(Generic[Answer]):
    """Concurrent reads by name; a read without an answer yet is not started again.

    An answer that comes too late is shown the next time, so slow lakes do not count as silent.

    Args:
        patience_s: timeout for an answer.
        silent: returns a substitute for the answer after some seconds without one.
    """

    def __init__(self, patience_s: float, silent: Callable[[float], Answer]) -> None:
        self._patience_s = patience_s
        self._silent = silent
        self._unanswered: dict[str, _Reading[Answer]] = {}

    def ask(self, reads: Mapping[str, Callable[[], Answer]]) -> dict[str, Answer]:
        """Return the answer of each read; a read must not raise."""
        until_s = time.monotonic() + self._patience_s
        answers = dict[str, Answer]()
        waits = dict[str, float]()
        for name, reader in reads.items():
            former = self._unanswered.get(name)
            if former is not None and former.is_running:
                waits[name] = 0.0
                continue
            self._unanswered[name] = _Reading(reader)
            late_answers = former.late_answers if former is not None else []
            if late_answers:
                answers[name] = late_answers[0]
            else:
                waits[name] = until_s
        answers |= {name: self._answer(name, moment_s) for name, moment_s in waits.items()}
        return {name: answers[name] for name in reads}

    def _answer(self, name: str, until_s: float) -> Answer:
        reading = self._unanswered[name]
        for answer in reading.wait(until_s):
            del self._unanswered[name]
            return answer
        return self._silent(time.monotonic() - reading.begun_s)


@dataclass
class Watch:
    """Pipelines whose facts are read on request, by one thread at a time."""

    pipelines: Sequence[WatchedPipeline]
    patience_s: float = PATIENCE_S
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: dict[object, tuple[float, str]] = field(default_factory=dict)
    _views: Readings[_View] = field(init=False)
    _states: Readings[PipelineFacts | UnreadablePipeline] = field(init=False)

    def __post_init__(self) -> None:
        self._views = Readings(self.patience_s, lambda seconds: (_silent(seconds), None))
        self._states = Readings(self.patience_s, _silent)

    def page(self, options: PageOptions) -> str:
        """Return the HTML of the page; a page for the same options is reused for a while."""
        return self._keep(options, lambda: self._write_page(options))

    def metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return self._keep("metrics", self._write_metrics)

    def _keep(self, key: object, write: Callable[[], str]) -> str:
        with self._lock:
            at_s, text = self._kept.get(key, (0.0, ""))
            if not text or time.monotonic() - at_s > KEPT_S:
                text = write()
                self._kept[key] = (time.monotonic(), text)
            return text

    def _write_page(self, options: PageOptions) -> str:
        views = self._views.ask(
            {pipeline.name: partial(self._view, pipeline, options.hours) for pipeline in self.pipelines}
        )
        return write_page(
            [PipelineView(name, *view) for name, view in views.items()], clock_micros(), options
        )

    def _view(self, pipeline: WatchedPipeline, hours: float) -> _View:
        facts = pipeline.read_facts()
        return facts, pipeline.read_history(facts, hours) if isinstance(facts, PipelineFacts) else None

    def _write_metrics(self) -> str:
        registry = CollectorRegistry()
        reads = {pipeline.name: pipeline.read_facts for pipeline in self.pipelines}
        registry.register(PipelineCollector(self._states.ask(reads)))
        return generate_latest(registry).decode()


def _silent(seconds: float) -> UnreadablePipeline:
    return UnreadablePipeline(
        f"Its lake has not answered for {as_duration(seconds)}: check its catalog and its object store."
    )
