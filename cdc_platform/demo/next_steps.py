"""Suggestions for users of the demo once a cut is published: commands to paste, and a page to open."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyarrow.compute as pc

from cdc_platform.demo.home import ACCOUNTS
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.names import PLATFORM_GROUP
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.printing.lines import print_line
from cdc_platform.printing.tables import make_grid, print_rendered

SUM: Final = f"SELECT count(*) AS accounts, sum(balance) AS total FROM {ACCOUNTS}"


@dataclass(frozen=True)
class Pages:
    """Addresses of the status page and of Dagster's UI."""

    status_page: str
    dagster: str


def print_next_steps(pipeline: Pipeline, cut: Cut, defs: Path, pages: Pages | None) -> None:
    """Print the suggestions in order; ``pages`` are the served pages, if any."""
    print_line()
    print_line(("Look at it while it runs, in another terminal:", "bold"))
    print_rendered(make_grid(next_steps(pipeline, cut, defs, pages), indent=2))
    print_line()


def next_steps(pipeline: Pipeline, cut: Cut, defs: Path, pages: Pages | None) -> Iterator[tuple[str, str]]:
    """Yield each suggestion, with the address or the command that shows it."""
    place = shlex.quote(_shorten(defs))
    yield "how far it is", pages.status_page if pages is not None else f"cdc-platform dashboard {place}"
    if pages is not None:
        yield "the graph", graph_address(pages.dagster, pipeline.settings.name)
    yield "the same as text", f"cdc-platform status {place} --watch"
    yield "one row explained", f"cdc-platform explain {place} {ACCOUNTS} {_newest_account(pipeline, cut)}"
    # DuckDB is not among the platform's required libraries.
    install = "" if find_spec("duckdb") else "pip install 'cdc_platform[duckdb]' && "
    yield "one query", f"{install}cdc-platform query {place} {shlex.quote(SUM)}"


def graph_address(dagster: str, name: str) -> str:
    """Return the page of the graph with a pipeline's groups opened, in the form of Dagster's UI."""
    groups = (name, f"{name}/{PLATFORM_GROUP}")
    return f"{dagster}/asset-groups?expanded={','.join(f'global@global:{group}' for group in groups)}"


def _newest_account(pipeline: Pipeline, cut: Cut) -> int:
    """Return the account of a cut that probably has the fewest changes."""
    table = pipeline.lake.table(ACCOUNTS)
    if table is None or ACCOUNTS not in cut.tables:
        return 0
    scan = table.scan(snapshot_id=cut.tables[ACCOUNTS], selected_fields=("account_id",))
    return int(pc.max(scan.to_arrow()["account_id"]).as_py() or 0)


def _shorten(path: Path) -> str:
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
