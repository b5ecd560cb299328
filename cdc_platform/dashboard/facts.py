"""Facts about a pipeline for the page and the metrics, from the lake's own tables: no Spark, no JVM."""

from dataclasses import dataclass, field

from cdc_platform.dashboard.change_rates import ChangeRates, RecentChanges, load_change_rates, recent_changes
from cdc_platform.dashboard.cut_history import lag_by_column, load_cut_history, publication_by_column
from cdc_platform.dashboard.health import Health, State, assess_health
from cdc_platform.dashboard.partition_lanes import PartitionLanes, draw_partitions
from cdc_platform.dashboard.read_lanes import ReadLanes, load_read_lanes
from cdc_platform.dashboard.time_span import TimeSpan, Values
from cdc_platform.errors import CdcError
from cdc_platform.lake.commits.commits import ancestors_of, count_rows, head, number_of
from cdc_platform.lake.state.control import load_lineage
from cdc_platform.lake.state.last_results import LastResult
from cdc_platform.model.base.stored_names import CYCLE, LOG, RAW
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.pipeline.on_demand.status import Status, read_status
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings


@dataclass(frozen=True)
class PipelineFacts:
    """State of a pipeline at one time.

    Args:
        status: status as in `cdc-platform status`.
        now_micros: time of the state.
        health: health of the pipeline.
        recent: changes of the last minutes.
        changes: changes in the log since the pipeline began; None if the log does not report their number.
        cycle_s: seconds from the commit of the newest cut's records to its publication; None without a cut.
    """

    status: Status
    now_micros: int
    health: Health
    recent: RecentChanges
    changes: int | None
    cycle_s: float | None

    @property
    def checks(self) -> tuple[LastResult, ...]:
        """Last results of the pipeline's checks."""
        return self.status.checks

    @property
    def watermark_lag_s(self) -> float | None:
        """This machine's clock minus the watermark; None before the first cycle."""
        watermark = self.status.watermark_micros
        return (self.now_micros - watermark) / 1e6 if watermark is not None else None


@dataclass(frozen=True)
class PipelineHistory:
    """History of a pipeline over a span of time, for charts.

    ``lag`` is the lag of the newest cut; for event sources, it is the time from reading to
    publication. ``partitions`` are those of a change stream, ``reads`` the reads of files and topics.
    """

    span: TimeSpan
    lag: Values
    rates: ChangeRates
    partitions: PartitionLanes | None = None
    reads: ReadLanes | None = None


@dataclass(frozen=True)
class UnreadablePipeline:
    """The error of a pipeline that cannot be read."""

    problem: str
    health: Health = field(default_factory=lambda: Health(State.UNKNOWN))


@dataclass(frozen=True)
class WatchedPipeline:
    """A pipeline that is only read; it never changes the lake."""

    pipeline: Pipeline
    late_after_s: float

    @classmethod
    def of(cls, settings: PipelineSettings, late_after_s: float) -> "WatchedPipeline":
        """Return the pipeline of these settings; its lake may not exist yet."""
        return cls(open_pipeline(settings).as_reader(), late_after_s)

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.pipeline.name

    def read_facts(self) -> PipelineFacts | UnreadablePipeline:
        """Return the pipeline's current state, or the error of reading it."""
        try:
            return self._read_facts()
        except Exception as error:  # noqa: BLE001  an error of one lake must not hide the others
            return unreadable(error)

    def _read_facts(self) -> PipelineFacts:
        pipeline = self.pipeline
        # Columns and tables may have been added since the last read.
        pipeline.forget_tables()
        status = read_status(pipeline)
        now_micros = clock_micros()
        log = pipeline.lake.system_table(LOG)
        return PipelineFacts(
            status=status,
            now_micros=now_micros,
            health=assess_health(status, now_micros, self.late_after_s),
            recent=recent_changes(log, now_micros),
            changes=count_rows(head(log)),
            cycle_s=_cycle_s(pipeline, status),
        )

    def read_history(self, facts: PipelineFacts, hours: float) -> PipelineHistory | UnreadablePipeline:
        """Return the history of the last hours, or the part that exists, or the error of reading it."""
        try:
            return self._read_history(facts, hours)
        except Exception as error:  # noqa: BLE001  as above
            return unreadable(error)

    def _read_history(self, facts: PipelineFacts, hours: float) -> PipelineHistory:
        lake, is_events = self.pipeline.lake, facts.status.delivers_events
        span = TimeSpan.before(facts.now_micros, hours)
        cuts = load_cut_history(lake, span, facts.status.cut)
        span = span.since(cuts.first_micros if cuts.first_micros is not None else facts.now_micros)
        lag = publication_by_column(cuts, span) if is_events else lag_by_column(cuts, span)
        rates = load_change_rates(lake.system_table(LOG), cuts, span)
        # The status reports damage to these; the other charts do not need them.
        unreadable = facts.status.unreadable
        if is_events:
            reads = load_read_lanes(lake, cuts, span) if "unread files" not in unreadable else None
            return PipelineHistory(span, lag, rates, reads=reads)
        lineage = load_lineage(lake) if "partitions" not in unreadable else None
        lanes = draw_partitions(lineage) if lineage is not None else None
        return PipelineHistory(span, lag, rates, partitions=lanes)


def unreadable(error: Exception) -> UnreadablePipeline:
    """Return a pipeline that cannot be read because of an error."""
    text = str(error) if isinstance(error, CdcError) else f"{type(error).__name__}: {error}"
    return UnreadablePipeline(text)


def _cycle_s(pipeline: Pipeline, status: Status) -> float | None:
    """Return the seconds from the commit of the raw records of the newest cut to its publication."""
    raw = pipeline.lake.system_table(RAW)
    for snapshot in ancestors_of(raw, head(raw)) if status.cut is not None else ():
        if status.cut is not None and number_of(snapshot, CYCLE) == status.cut.cycle:
            return status.cut.published_micros / 1e6 - snapshot.timestamp_ms / 1e3
    return None
