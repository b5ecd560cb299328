"""What the demo prints to look at: pages, and commands that can be pasted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.demo import next_steps
from cdc_platform.demo.next_steps import Pages
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform_tests.commands.invoking import PROGRAM, parsed
from cdc_platform_tests.yaml_files import write_defs

PAGES = Pages("http://127.0.0.1:1", "http://127.0.0.1:2")


def steps(folder: Path, pages: Pages | None) -> Iterator[tuple[str, str]]:
    """Return the steps of a pipeline whose cut has no table yet."""
    defs = write_defs(folder)
    pipeline = open_pipeline(load_settings(defs))
    return next_steps.next_steps(pipeline, Cut(1, 0, 1, {}, 0), defs, pages)


def test_every_command_can_be_pasted(tmp_path: Path) -> None:
    """Each command is one of the platform's, with arguments that it takes; pages come first."""
    shown = [text for _, text in steps(tmp_path, PAGES)]
    assert shown[:2] == [PAGES.status_page, next_steps.graph_address(PAGES.dagster, "bank")]
    names = [parsed(text.rsplit(" && ", 1)[-1]).command.name for text in shown[2:]]
    assert names == ["status", "explain", "query"]


def test_without_pages_a_command_serves_the_status_page(tmp_path: Path) -> None:
    """The labels stay in their order, so that what is the same as text has something before it."""
    shown = dict(steps(tmp_path, None))
    assert [*shown] == ["how far it is", "the same as text", "one row explained", "one query"]
    assert parsed(shown["how far it is"]).command.name == "dashboard"


def test_a_query_without_its_library_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of `query` is an extra, which a demo may lack."""
    monkeypatch.setattr(next_steps, "find_spec", lambda _name: None)
    *_, (_, query) = steps(tmp_path, None)
    assert query.startswith(f"pip install 'cdc_platform[duckdb]' && {PROGRAM}query ")
