"""Tables of settings in the pages are what the code declares."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import pytest

from cdc_platform.components.loading import COMPONENTS
from cdc_platform.model.base.declared_settings import Described, is_group, settings_of
from cdc_platform_tests.docs.setting_tables import GROUPS, MORE, SECTION, described, filled, table_of

PAGES: Final = ("settings.md", "spanner-settings.md", "datastream-settings.md", "debezium-settings.md")
DOCS: Final = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_tables_of_settings_are_as_declared(name: str) -> None:
    """A page has the types, defaults and descriptions of the code; `UPDATE_GOLDEN=1` writes them."""
    page = DOCS / name
    text = page.read_text(encoding="utf-8")
    expected = filled(text)
    if os.environ.get("UPDATE_GOLDEN"):
        page.write_text(expected, encoding="utf-8")
    else:
        assert expected == text, "made by UPDATE_GOLDEN=1 pytest -n0 cdc_platform_tests/docs"


def test_every_table_is_on_a_page() -> None:
    """Each group of settings has its table on one page."""
    shown = [
        name for page in PAGES for _, name, _ in SECTION.findall((DOCS / page).read_text(encoding="utf-8"))
    ]
    assert sorted(GROUPS) == sorted(shown)


def groups_below(kind: type) -> set[type]:
    """Return the dataclasses of settings at and below one that the YAML may have."""
    inner = {
        group
        for setting in described(kind)
        for group in (setting.kind, *setting.choices.values())
        if is_group(group)
    }
    return {kind}.union(*(groups_below(group) for group in inner))


def test_every_group_of_settings_has_a_table() -> None:
    """What a YAML file of any kind of pipeline may have is on the pages."""
    roots = {component.source_class for component in COMPONENTS.values()} | set(GROUPS["pipeline"])
    listed = {kind for kinds in GROUPS.values() for kind in kinds}
    assert set() == set().union(*(groups_below(root) for root in roots)) - listed


def test_links_belong_to_settings() -> None:
    """Each link to an explanation names a setting that there is."""
    names = {
        f"{group}.{name}" for group, kinds in GROUPS.items() for kind in kinds for name in settings_of(kind)
    }
    assert set() == set(MORE) - names


@dataclass(frozen=True)
class Sample:
    """Settings with one of each form of default."""

    path: Annotated[str, Described("A | B.")]
    names: Annotated[tuple[str, ...], Described("Names.")] = ("a", "b")
    wait_s: Annotated[float, Described("Rest.")] = 7200.0
    max_bytes: Annotated[int, Described("Room.")] = 3 << 20
    is_on: Annotated[bool, Described("Switch.")] = True
    maybe: Annotated[int | None, Described("Number.")] = None


def test_a_table_shows_values_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults are written as in the YAML, with the unit that people use; a bar ends no cell."""
    monkeypatch.setitem(GROUPS, "sample", (Sample,))
    assert table_of("sample").splitlines()[2:] == [
        "| `path` | text | required | A \\| B. |",
        "| `names` | list of text | `a`, `b` | Names. |",
        "| `wait_s` | number | 7,200 (2 hours) | Rest. |",
        "| `max_bytes` | integer | 3,145,728 (3 MiB) | Room. |",
        "| `is_on` | `true`, `false` | `true` | Switch. |",
        "| `maybe` | integer | | Number. |",
    ]
