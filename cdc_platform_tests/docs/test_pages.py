"""Targets of links in the pages exist: programs, files and headings."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from cdc_platform.pipeline.checks.invariants import CHECKS
from cdc_platform_tests.docs.code_blocks import PAGES, ROOT
from cdc_platform_tests.repository_files import text_files

FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE_CODE: Final = re.compile(r"`[^`\n]*`")
HEADING: Final = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
LINK: Final = re.compile(r"\]\((?P<target>[^()\s]+)\)")
ELSEWHERE: Final = ("https://", "http://", "mailto:")
MODULE: Final = re.compile(r"\bpython3? -m ([\w.]+)")
SOURCE: Final = re.compile(r"`((?!dagster/)\w+/[\w/]+\.py)\b")
"""A Python file in a folder; those of Dagster are not in this project."""
SOURCES: Final = [f"/{path.relative_to(ROOT).as_posix()}" for path in text_files()]


def anchors_of(page: Path) -> set[str]:
    """Return what the headings of a page are called in links, as GitHub makes it."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead to no file of the project, or to no heading of one."""
    text = INLINE_CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    broken = []
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        place = page if not path else page.parent / path
        if target.startswith(ELSEWHERE):
            continue
        if not place.exists() or (anchor and anchor not in anchors_of(place)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file, and a heading of it where it names one."""
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_that_pages_start_exist(page: Path) -> None:
    """Every module that a page runs by `python -m` can be run."""
    named = MODULE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if find_spec(name) is None] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_source_files_that_pages_name_exist(page: Path) -> None:
    """A Python file that a page names, with at least one folder, is a file of the project."""
    named = SOURCE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in SOURCES)] == []


def test_every_check_is_on_its_page() -> None:
    """The page of the checks has a row for each, with its asset and what Dagster shows as its condition."""
    rows = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8").splitlines()
    starts = {f"| `{check.name}` | `{check.asset}` |": check.description.split(". ")[0] for check in CHECKS}
    shown = {
        start: [row for row in rows if row.startswith(start) and text in row]
        for start, text in starts.items()
    }
    assert [start for start, matches in shown.items() if len(matches) != 1] == []


def test_every_page_is_linked_from_the_first() -> None:
    """Anyone who reads the first page of docs/ finds all others, those of errors by their index."""
    first, errors = ROOT / "docs" / "README.md", ROOT / "docs" / "errors.md"
    linked = {
        (page.parent / link).resolve()
        for page in (first, errors)
        for link in LINK.findall(page.read_text(encoding="utf-8"))
    }
    assert {ROOT / "README.md", first} == set(PAGES) - linked
    assert "docs/README.md" in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_broken_links_are_found(tmp_path: Path) -> None:
    """A missing file or heading is reported; code and other sites are skipped."""
    (tmp_path / "other.md").write_text("# Other\n\n## A `code` heading: two\n", encoding="utf-8")
    page = tmp_path / "page.md"
    good = "[a](other.md) [b](other.md#a-code-heading-two) [c](#here) [d](https://example.com/x) `[e](no.md)`"
    page.write_text(f"# Here\n\n{good}\n\n[f](no.md) [g](other.md#no)\n", encoding="utf-8")
    assert broken_links(page) == ["no.md", "other.md#no"]
