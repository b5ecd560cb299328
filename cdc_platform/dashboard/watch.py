"""Several pipelines, read together: their page and their metrics."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from cdc_platform.dashboard.check_history import CheckHistory
from cdc_platform.dashboard.facts import PipelineFacts, WatchedPipeline
from cdc_platform.dashboard.metrics import PipelineCollector
from cdc_platform.dashboard.page import PageOptions, PipelineView, write_page

KEPT_S: Final = 2.0
"""For so long what was read is shown again, so that many readers cost no more than one."""


@dataclass
class Watch:
    """Pipelines that are read when somebody asks, one reader at a time."""

    pipelines: Sequence[WatchedPipeline]
    checks: CheckHistory
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: dict[object, tuple[float, str]] = field(default_factory=dict)

    def page(self, options: PageOptions) -> str:
        """Return the page."""
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
        views = []
        for watched in self.pipelines:
            facts = watched.read_facts(self.checks)
            history = watched.read_history(facts, options.hours) if isinstance(facts, PipelineFacts) else None
            views.append(PipelineView(watched.name, facts, history))
        return write_page(views, time.time_ns() // 1000, options)

    def _write_metrics(self) -> str:
        registry = CollectorRegistry()
        facts = {watched.name: watched.read_facts(self.checks) for watched in self.pipelines}
        registry.register(PipelineCollector(facts))
        return generate_latest(registry).decode()
