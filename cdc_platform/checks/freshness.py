"""The freshness check of a table: the lag of the newest cut stays below the bounds of the YAML.

Runs report it, and for a pipeline that stands still a separate sensor does, from the lake's metadata. It
counts the lag of the data, not the time since the last materialisation, so a table that
nothing changes stays fresh.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import dagster as dg
import msgspec

from cdc_platform.assets.check_results import as_result, last_results
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import launched_runs
from cdc_platform.errors import CdcError, LakeError
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.cuts import Cut, newest_cut
from cdc_platform.lake.state.last_results import save_results
from cdc_platform.lake.state.read_progress import left_since, load_poll
from cdc_platform.metadata import LAG, WAITING, moment
from cdc_platform.model.base.names import FRESH
from cdc_platform.model.base.quantities import as_count, as_duration
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.pipeline.opened.pipeline import open_lake, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.reading.trace import trace_lineage
from cdc_platform.sensors import SOURCE_DEADLINE_S, RunSettings, default_status, has_news
from cdc_platform.visible import visible_text

LOOK_EVERY_S: Final = 30
REPORT_EVERY_S: Final = 600.0
"""Results that stay the same are reported this often; others at once."""
RENEWED_EVERY_S: Final = 3600.0
"""The lake gets results that stay the same this often; without any, it forgets them after some days."""
RESULTS_A_REPORT: Final = 100
"""With more tables, the interval grows in proportion: Dagster keeps each result."""


@dataclass(frozen=True)
class Freshness:
    """The newest cut, and its lag; for an event source, how long data that it lacks has waited to be read.

    ``news_since_micros`` is when such data was first seen, None if there is none. ``is_part`` states that the
    cycle of the cut has left some of it. ``error`` is the reason why the lag is unknown, else empty.
    """

    cut: Cut | None
    lag_s: float
    news_since_micros: int | None = None
    is_part: bool = False
    error: str = ""

    @classmethod
    def after_cycle(
        cls, cut: Cut | None, left_since_micros: int | None, *, delivers_events: bool
    ) -> "Freshness":
        """Return how fresh the tables are right after a cycle; `left_since` states what it may have left."""
        if cut is None:
            return cls(cut, 0.0)
        if not delivers_events:
            return cls(cut, cut.lag_s(clock_micros()))
        return cls.of_rest(cut, left_since_micros, clock_micros()) or cls(cut, 0.0)

    @classmethod
    def of_rest(cls, cut: Cut, since_micros: int | None, now_micros: int) -> "Freshness | None":
        """Return the freshness of a cut whose cycle has left events to later ones, None of another one."""
        if since_micros is None:
            return None
        return cls(cut, cut.lag_s(now_micros, since_micros), since_micros, is_part=True)


def build_freshness_check(
    assets: PipelineAssets, settings: PipelineSettings, runs: RunSettings
) -> dg.AssetChecksDefinition:
    """Return the check of all tables, which runs on request."""
    description = f"Compares the lag of the newest cut with bounds. {_bounds_text(runs)}"

    @dg.multi_asset_check(
        name=f"{assets.pipeline}__{FRESH}",
        specs=[dg.AssetCheckSpec(FRESH, asset=key, description=description) for key in assets.all_tables],
        can_subset=True,
    )
    def fresh(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        # Only the sensor knows how long new data has waited; the newest cut may be old because nothing came.
        lake = open_lake(settings)
        freshness = find_freshness(settings, lake, clock_micros(), news_since_micros=None)
        keys = context.selected_asset_check_keys
        evaluations = [
            evaluation
            for evaluation in freshness_results(assets, runs, freshness)
            if evaluation.asset_check_key in keys
        ]
        save_results(lake, last_results(evaluations))
        yield from map(as_result, evaluations)

    return fresh


def build_freshness_sensor(
    assets: PipelineAssets, settings: PipelineSettings, runs: RunSettings
) -> dg.SensorDefinition:
    """Return the sensor that reports the check."""

    @dg.sensor(
        name=f"{settings.name}_freshness_sensor",
        minimum_interval_seconds=LOOK_EVERY_S,
        default_status=default_status(runs),
        description=f"Reports the check `{FRESH}` of each table of `{settings.name}`: at once when a result "
        f"changes, else every {report_interval_s(len(assets.all_tables)):.0f} s. It starts no runs.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        evaluation = Evaluation(context.cursor, bool(launched_runs(context.instance, settings.name)))
        outcome = report(assets, settings, runs, evaluation, clock_micros())
        if outcome.asset_events and runs.keep_runs_s is not None:
            from cdc_platform.old_runs import delete_old_results

            delete_old_results(context.instance, assets, runs.keep_runs_s)
        return outcome

    return evaluate


@dataclass(frozen=True)
class Evaluation:
    """The start of a sensor evaluation: the cursor, and whether a run of the pipeline is active."""

    cursor: str | None = None
    is_running: bool = False


def report(
    assets: PipelineAssets,
    settings: PipelineSettings,
    runs: RunSettings,
    before: Evaluation,
    now_micros: int,
) -> dg.SensorResult:
    """Return the results, unless they are those of a recent report; a run reports good ones itself.

    An unknown lag, for example while the source is down, is a warning; otherwise the last result would stay.

    Args:
        assets: the names of the pipeline's assets.
        settings: the settings of the pipeline.
        runs: the settings with the bounds.
        before: the state after the previous evaluation.
        now_micros: the present time.
    """
    memory = _SensorCursor.of(before.cursor)
    lake, is_reached = open_lake(settings), True
    try:
        freshness = find_freshness(settings, lake, now_micros, memory.news_since_micros)
    except CdcError as error:
        is_reached = not isinstance(error, LakeError)
        reason = visible_text(f"{type(error).__name__}: {error}")
        freshness = Freshness(None, 0.0, memory.news_since_micros, error=reason)
    evaluations = list(freshness_results(assets, runs, freshness))
    if is_reached:
        save_all_fresh(lake, evaluations, unchanged_after_s=RENEWED_EVERY_S)
    is_due = is_report_due(evaluations, memory.results, now_micros / 1e6 - memory.reported_s)
    is_due &= not (before.is_running and all(evaluation.passed for evaluation in evaluations))
    reported_s = now_micros / 1e6 if is_due else memory.reported_s
    after = _SensorCursor(results_of(evaluations), reported_s, freshness.news_since_micros)
    return dg.SensorResult(
        asset_events=evaluations if is_due else [],
        # Dagster says of results without a reason that the sensor returned nothing.
        skip_reason=_describe_report(evaluations) if is_due else "The results are those of the last report.",
        cursor=msgspec.json.encode(after).decode(),
    )


def _describe_report(evaluations: Sequence[dg.AssetCheckEvaluation]) -> str:
    passed = sum(evaluation.passed for evaluation in evaluations)
    return f"Reported the check `{FRESH}` of {as_count(len(evaluations), 'table')}: {passed} passed."


def save_all_fresh(
    lake: Lake, evaluations: Iterable[dg.AssetCheckEvaluation], unchanged_after_s: float = 0.0
) -> None:
    """Store the results of all tables in the lake; those of other tables, and without bounds all, go."""
    results = last_results(evaluations)
    save_results(
        lake, results, stays=lambda former: former.name != FRESH, unchanged_after_s=unchanged_after_s
    )


def is_report_due(
    evaluations: Sequence[dg.AssetCheckEvaluation], results_before: str, since_s: float
) -> bool:
    """Return whether results are to be reported: one has changed, or the last report was long ago."""
    return results_of(evaluations) != results_before or since_s >= report_interval_s(len(evaluations))


def report_interval_s(tables: int) -> float:
    """Return the seconds between two reports of results that stay the same."""
    return REPORT_EVERY_S * max(1.0, tables / RESULTS_A_REPORT)


def results_of(evaluations: Iterable[dg.AssetCheckEvaluation]) -> str:
    """Return the results of all tables without their lags, as a text that changes when one of them does."""
    return ",".join("01"[evaluation.passed] + evaluation.severity.value for evaluation in evaluations)


@dataclass(frozen=True)
class _SensorCursor:
    """The state that the sensor keeps between evaluations."""

    results: str = ""
    reported_s: float = 0.0
    news_since_micros: int | None = None

    @classmethod
    def of(cls, cursor: str | None) -> "_SensorCursor":
        """Parse a cursor; users can reset or edit it in the UI, and a text of theirs is like none."""
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(cursor or "{}", type=cls)
        return cls()


def find_freshness(
    settings: PipelineSettings, lake: Lake, now_micros: int, news_since_micros: int | None
) -> Freshness:
    """Return how far behind the newest cut is.

    Args:
        settings: the settings of the pipeline.
        lake: its part of the lake.
        now_micros: the present by this machine's clock.
        news_since_micros: when new data was first seen, None if unknown; for an event source the time counts
            from there, or from the newest read or poll that took everything.

    Raises:
        CdcError: the lake, or an event source, cannot be read.
    """
    settings = replace(settings, source=settings.source.with_deadline(SOURCE_DEADLINE_S))
    pipeline = replace(open_pipeline(settings), lake=lake)
    try:
        cut = newest_cut(pipeline.lake)
        if cut is None:
            return Freshness(None, 0.0)
        if not pipeline.capabilities.delivers_events:
            return Freshness(cut, cut.lag_s(now_micros))
        rest = Freshness.of_rest(cut, left_since(lake, cut), now_micros)
        if rest is not None:
            return rest
        if not has_news(pipeline, trace_lineage(pipeline), pipeline.source.clock_micros()):
            return Freshness(cut, 0.0)
        since_micros = news_since_micros if news_since_micros is not None else now_micros
        unread_micros = max(since_micros, cut.position_micros, load_poll(lake))
        return Freshness(cut, cut.lag_s(now_micros, unread_micros), since_micros)
    finally:
        pipeline.source.close()


def freshness_results(
    assets: PipelineAssets, runs: RunSettings, freshness: Freshness
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the result of each table; it is a warning if no cut has the table yet, or the lag is unknown."""
    cut, lag_s = freshness.cut, freshness.lag_s
    if not runs.has_freshness:
        return
    cut_tables = {assets.table(name) for name in cut.tables} if cut is not None else set()
    is_late = runs.fresh_fail_s is not None and lag_s > runs.fresh_fail_s
    is_slow = runs.fresh_warn_s is not None and lag_s > runs.fresh_warn_s
    rest = ", as the newest cycle has read only a part of what waits" if freshness.is_part else ""
    lag_name = WAITING if assets.capabilities.delivers_events else LAG
    for key in assets.all_tables:
        is_published = key in cut_tables
        text = f"{as_duration(lag_s)} behind{rest}" if is_published else "in no cut yet"
        text = f"not known: {freshness.error}" if freshness.error else text
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=FRESH,
            passed=is_published and not is_late and not is_slow,
            severity=dg.AssetCheckSeverity.ERROR if is_late else dg.AssetCheckSeverity.WARN,
            description=f"{text}. {_bounds_text(runs)}",
            metadata={lag_name: lag_s, "Position": moment(cut.position_micros)} if cut is not None else {},
            blocking=False,
        )


def _bounds_text(runs: RunSettings) -> str:
    """Return the bounds of the freshness check as a sentence."""
    bounds = {"warns": runs.fresh_warn_s, "fails": runs.fresh_fail_s}
    texts = [f"{verb} above {as_duration(bound)}" for verb, bound in bounds.items() if bound is not None]
    return f"The check {' and '.join(texts)}."
