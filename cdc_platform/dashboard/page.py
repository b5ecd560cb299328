"""The status page: facts and history of some pipelines as one self-contained HTML document without scripts.

Jinja2 writes the charts as inline SVG. Lines and rectangles need no charting library and follow the light or
dark colours of the page. A page takes some tens of kilobytes and works offline; plotly would embed 4 MB.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cdc_platform.dashboard.charts import (
    as_moment,
    as_time,
    draw_chart,
    draw_partition_chart,
    draw_reads,
    nice_seconds,
    nice_top,
)
from cdc_platform.dashboard.facts import PipelineFacts, PipelineHistory, UnreadablePipeline
from cdc_platform.model.base.names import FRESH, lake_table_name
from cdc_platform.model.base.quantities import as_count, as_duration, as_number
from cdc_platform.pipeline.on_demand.status import Status
from cdc_platform.visible import visible_text

SPANS: Final = {"1 h": 1.0, "24 h": 24.0, "7 d": 168.0}
"""Time spans of the served page, in hours."""


@dataclass(frozen=True)
class PipelineView:
    """One pipeline on the page; an `UnreadablePipeline` ``history`` holds the reason."""

    name: str
    facts: PipelineFacts | UnreadablePipeline
    history: PipelineHistory | UnreadablePipeline | None


@dataclass(frozen=True)
class PageOptions:
    """Options of a page.

    Args:
        hours: time span of the page.
        refresh_s: seconds after which the browser reloads the page; None for no reload.
        dagster_url: address of Dagster's UI for links.
        is_served: whether a server sends the page, which then links to other time spans and the metrics.
    """

    hours: float
    refresh_s: int | None = None
    dagster_url: str | None = None
    is_served: bool = False


def write_page(views: Sequence[PipelineView], now_micros: int, options: PageOptions) -> str:
    """Return the page; pipelines that need attention come first."""
    views = sorted(views, key=lambda view: view.facts.health.is_healthy)
    amber = [view for view in views if not view.facts.health.is_healthy]
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            views=[_describe(view) for view in views],
            amber=amber,
            now_micros=now_micros,
            options=options,
            spans=SPANS,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cdc_platform.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts = (as_count, as_duration, as_moment, as_number, as_time)
    environment.filters.update({function.__name__.removeprefix("as_"): function for function in texts})
    return environment


def _visible(value: Any) -> Any:
    """Return a text with control characters and characters that change the text's direction made visible."""
    return visible_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _describe(view: PipelineView) -> dict[str, Any]:
    """Return the values for the template of a pipeline."""
    values = {"name": view.name, "facts": view.facts, "health": view.facts.health, "problem": None}
    if isinstance(view.facts, UnreadablePipeline):
        return {**values, "problem": view.facts.problem}
    if isinstance(view.history, UnreadablePipeline):
        values["problem"] = view.history.problem
    history = view.history if isinstance(view.history, PipelineHistory) else None
    return {
        **values,
        "status": view.facts.status,
        "charts": _draw(history, view.facts.status) if history is not None else None,
        "tables": _tables(view.facts),
        "failed": [check for check in view.facts.checks if check.has_failed],
        "warned": [check for check in view.facts.checks if not check.passed and check.is_warning],
    }


def _draw(history: PipelineHistory, status: Status) -> dict[str, Any]:
    reads = history.reads
    lag_title = "Time from reading to publication" if status.delivers_events else "Lag of the newest cut"
    return {
        "lag": draw_chart(history.lag, history.span, as_duration, nice_seconds),
        "lag_title": lag_title,
        "rates": draw_chart(history.rates.per_second, history.span, _as_rate, nice_top),
        "is_exact": history.rates.is_exact,
        "partitions": draw_partition_chart(history.partitions) if history.partitions is not None else None,
        "reads": [(lane, draw_reads(lane, history.span)) for lane in reads.lanes]
        if reads is not None
        else None,
        "read_places": reads.total if reads is not None else 0,
    }


def _as_rate(per_second: float) -> str:
    return f"{as_number(per_second)}/s"


def _tables(facts: PipelineFacts) -> list[dict[str, Any]]:
    """Return the rows of the table of tables."""
    changes = {lake_table_name(table): count for table, count in facts.recent.by_table.items()}
    cut = facts.status.cut
    lake_names = {lake_table_name(name) for name in cut.tables} if cut is not None else set()
    fresh = {check.asset: check for check in facts.checks if check.name == FRESH}
    return [
        {
            "name": name,
            "rows": table.rows,
            "changes": changes.get(name, 0),
            "changed_micros": table.changed_micros,
            "is_published": name in lake_names,
            "fresh": fresh.get(f"{facts.status.pipeline}/{name}"),
        }
        for name, table in facts.status.tables.items()
    ]
