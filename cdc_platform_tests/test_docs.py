"""Targets of links in the pages exist: programs, files and headings."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from cdc_platform.components.loading import load_each
from cdc_platform.model.base.declared_settings import is_group, settings_of
from cdc_platform.pipeline.checks.invariants import CHECKS
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (
    ROOT / "README.md",
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
)

FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE_CODE: Final = re.compile(r"`[^`\n]*`")
HEADING: Final = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
LINK: Final = re.compile(r"\]\((?P<target>[^()\s]+)\)")
ELSEWHERE: Final = ("https://", "http://", "mailto:")
DECLARED: Final = re.compile(r"^```yaml\n(type: .*?)^```", re.MULTILINE | re.DOTALL)
MODULE: Final = re.compile(r"\bpython3? -m ([\w.]+)")


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
def test_pipelines_that_pages_declare_are_taken(page: Path, tmp_path: Path) -> None:
    """Every whole file that a page shows can be loaded as it stands."""
    for number, text in enumerate(DECLARED.findall(page.read_text(encoding="utf-8"))):
        defs = tmp_path / f"{number}.yaml"
        defs.write_text(text, encoding="utf-8")
        assert load_each(defs)


def described(kind: type) -> Iterator[str]:
    """Yield the names of the settings that a dataclass declares for the YAML, and of those below them."""
    for name, setting in settings_of(kind).items():
        if setting.description is not None:
            yield name
            for group in (setting.kind, *setting.choices.values()):
                if is_group(group):
                    yield from described(group)


@pytest.mark.parametrize(
    ("page", "kind"),
    [("datastream-settings.md", DatastreamSettings), ("debezium-settings.md", DebeziumSettings)],
)
def test_every_setting_is_on_its_page(page: str, kind: type) -> None:
    """The page of a source has a row for each setting that its dataclass declares."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [name for name in described(kind) if f"`{name}`" not in text and f".{name}`" not in text] == []


def test_every_check_is_on_its_page() -> None:
    """The page of the UI has a row for each check, with its asset."""
    text = (ROOT / "docs" / "dagster.md").read_text(encoding="utf-8")
    assert [check.name for check in CHECKS if f"| `{check.name}` | `{check.asset}` |" not in text] == []


def test_every_page_is_linked_from_the_first() -> None:
    """Anyone who reads the README finds all pages."""
    linked = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert set() == {str(page.relative_to(ROOT)) for page in PAGES[1:]} - linked


def test_broken_links_are_found(tmp_path: Path) -> None:
    """A file or a heading that is not there is told; code and other sites are passed over."""
    (tmp_path / "other.md").write_text("# Other\n\n## A `code` heading: two\n", encoding="utf-8")
    page = tmp_path / "page.md"
    good = "[a](other.md) [b](other.md#a-code-heading-two) [c](#here) [d](https://example.com/x) `[e](no.md)`"
    page.write_text(f"# Here\n\n{good}\n\n[f](no.md) [g](other.md#no)\n", encoding="utf-8")
    assert broken_links(page) == ["no.md", "other.md#no"]
