"""Prometheus metrics of pipelines; docs/metrics.md lists their names."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cdc_platform.dashboard.facts import PipelineFacts, UnreadablePipeline

PREFIX: Final = "cdc_platform_"

_Read = Callable[[PipelineFacts], float | None]
_Samples = Callable[[PipelineFacts], Sequence[tuple[Sequence[str], float | None]]]
"""Returns the values of all labels except `pipeline`, and the value; None produces no sample."""


@dataclass(frozen=True, eq=False)
class PipelineCollector(Collector):
    """The metrics of some pipelines, by their names."""

    facts: Mapping[str, PipelineFacts | UnreadablePipeline]

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; a pipeline for which a metric is unknown has no sample of it."""
        readable = {name: facts for name, facts in self.facts.items() if isinstance(facts, PipelineFacts)}
        up = GaugeMetricFamily(
            f"{PREFIX}up", "1 if the pipeline can be read in its lake.", labels=["pipeline"]
        )
        healthy = GaugeMetricFamily(
            f"{PREFIX}healthy", "1 if the status page calls the pipeline healthy.", labels=["pipeline"]
        )
        for name, facts in self.facts.items():
            up.add_metric([name], float(name in readable))
            healthy.add_metric([name], float(facts.health.is_healthy))
        yield from (up, healthy)
        kind: type[GaugeMetricFamily | CounterMetricFamily]
        for kind, numbers in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, text, reader in numbers:
                family = kind(PREFIX + name, text, labels=["pipeline"])
                yield _fill(family, _with_part_of(readable, name), _unlabelled(reader))
        for name, text, labels, samples in _LABELLED:
            family = GaugeMetricFamily(PREFIX + name, text, labels=["pipeline", *labels])
            yield _fill(family, _with_part_of(readable, name), samples)


_PARTS: Final = {"cuts": "cut", "unread_files": "unread files", "stuck_partitions": "stuck partitions"}
"""Parts of a status that other metrics are numbers of: what cannot be read is not 0."""


def _with_part_of(readable: Mapping[str, PipelineFacts], metric: str) -> dict[str, PipelineFacts]:
    """Return the pipelines of which the part that a metric counts can be read."""
    part = _PARTS.get(metric, metric)
    return {name: facts for name, facts in readable.items() if part not in facts.status.unreadable}


def _unlabelled(reader: _Read) -> _Samples:
    return lambda facts: [((), reader(facts))]


def _fill(
    family: GaugeMetricFamily | CounterMetricFamily, readable: Mapping[str, PipelineFacts], samples: _Samples
) -> Metric:
    for pipeline, facts in readable.items():
        for labels, value in samples(facts):
            if value is not None:
                family.add_metric([pipeline, *labels], float(value))
    return family


_GAUGES: Final[tuple[tuple[str, str, _Read], ...]] = (
    (
        "lag_seconds",
        "This machine's clock minus the position of the newest cut, or minus the age of what its cycle left.",
        lambda facts: None if facts.status.is_silence else facts.status.lag_s,
    ),
    (
        "watermark_lag_seconds",
        "This machine's clock minus the watermark; change streams only.",
        lambda facts: None if facts.status.delivers_events else facts.watermark_lag_s,
    ),
    (
        "silence_seconds",
        "Seconds since the source last had something to read; files and topics only.",
        lambda facts: facts.status.lag_s if facts.status.is_silence else None,
    ),
    (
        "polled_timestamp_seconds",
        "When the source was last polled, in seconds since the epoch; files and topics only.",
        lambda facts: facts.status.polled_micros / 1e6 if facts.status.polled_micros is not None else None,
    ),
    (
        "cut_published_timestamp_seconds",
        "When the newest cut was published, in seconds since the epoch.",
        lambda facts: facts.status.cut.published_micros / 1e6 if facts.status.cut is not None else None,
    ),
    (
        "cycle_seconds",
        "Seconds from the commit of the newest cut's records to the publication of the cut.",
        lambda facts: facts.cycle_s,
    ),
    ("quarantined_records", "Open records in quarantine.", lambda facts: facts.status.quarantined),
    ("unread_files", "Files that could not be read.", lambda facts: len(facts.status.unread_files)),
    (
        "stuck_partitions",
        "Partitions that hold the watermark and send no records although queried again.",
        lambda facts: len(facts.status.stuck_partitions),
    ),
)

_COUNTERS: Final[tuple[tuple[str, str, _Read], ...]] = (
    ("cycles", "Cycles that have read records.", lambda facts: facts.status.cycle),
    (
        "cuts",
        "Cuts that have been published.",
        lambda facts: facts.status.cut.cut if facts.status.cut is not None else 0,
    ),
    ("changes", "Changes in the change log.", lambda facts: facts.changes),
)

_CHECK_LABELS: Final = ("check", "asset")

_LABELLED: Final[tuple[tuple[str, str, Sequence[str], _Samples], ...]] = (
    (
        "table_rows",
        "Rows of a table as readers see it.",
        ("table",),
        lambda facts: [((name,), table.rows) for name, table in facts.status.tables.items()],
    ),
    (
        "partitions",
        "Partitions of the source by state; finished ones are kept for a week.",
        ("state",),
        lambda facts: [
            (("live",), len(facts.status.live_partitions)),
            (("waiting",), len(facts.status.waiting_partitions)),
            (("finished",), facts.status.finished_partitions),
        ],
    ),
    (
        "check_passed",
        "1 if a check passed when it last ran.",
        _CHECK_LABELS,
        lambda facts: [((check.name, check.asset), float(check.passed)) for check in facts.checks],
    ),
    (
        "check_timestamp_seconds",
        "When a check last ran, in seconds since the epoch.",
        _CHECK_LABELS,
        lambda facts: [((check.name, check.asset), check.at_s) for check in facts.checks],
    ),
    (
        "unreadable",
        "1 for each part of the lake that cannot be read, such as `checks`; its metrics have no samples.",
        ("part",),
        lambda facts: [((part,), 1.0) for part in facts.status.unreadable],
    ),
    (
        "copy_chunks",
        "Chunks of a running initial copy.",
        ("table",),
        lambda facts: [((table,), copy.chunks) for table, copy in facts.status.copies.items()],
    ),
    (
        "copy_copied_chunks",
        "Chunks that an initial copy has copied.",
        ("table",),
        lambda facts: [((table,), copy.copied_chunks) for table, copy in facts.status.copies.items()],
    ),
)
