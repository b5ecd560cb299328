"""A dataclass declares settings once; they are read from YAML and JSON by the types of its fields."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import (
    Described,
    check_filled,
    check_members,
    check_range,
    read_json,
    read_settings,
    settings_of,
    to_json,
)


class Colour(StrEnum):
    """A closed list."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Disc:
    """One of two."""

    folder: Annotated[str, Described("Where.", is_path=True)]


@dataclass(frozen=True)
class Wire:
    """The other one."""

    host: Annotated[str, Described("To whom.")]
    timeout_s: float = 1.0


@dataclass(frozen=True)
class Whole:
    """A field of each type."""

    place: Annotated[Disc | Wire, Described("Where to.", choices={"disc": Disc, "wire": Wire})]
    name: Annotated[str, Described("Name.")]
    colour: Annotated[Colour, Described("Colour.")] = Colour.RED
    colours: Annotated[Mapping[str, Colour], Described("By name.")] = field(default_factory=dict)
    names: Annotated[tuple[str, ...], Described("Names.")] = ()
    some: Annotated[tuple[str, ...] | None, Described("Some, or all.")] = None
    by_table: Annotated[Mapping[str, tuple[str, ...]], Described("By table.")] = field(default_factory=dict)
    rest_s: Annotated[float, Described("Rest.")] = 1.0
    hidden: int = 0


GIVEN: dict[str, Any] = {"place": {"disc": {"folder": "f"}}, "name": "n"}


def test_values_are_read_by_their_types(tmp_path: Path) -> None:
    """Lists become tuples, texts members, and relative paths lie in the folder of the file."""
    given = GIVEN | {"colour": "blue", "colours": {"x": "red"}, "names": ["a"], "by_table": {"t": ["b"]}}
    expected = Whole(
        Disc(str(tmp_path / "f")), "n", Colour.BLUE, {"x": Colour.RED}, ("a",), by_table={"t": ("b",)}
    )
    assert expected == read_settings(Whole, given, tmp_path)


def test_nothing_stands_for_the_default() -> None:
    """Of a setting that may be left out; where null is a valid value, it stays."""
    settings = read_settings(Whole, GIVEN | {"names": None, "colour": None, "some": None})
    assert settings == Whole(Disc("f"), "n")


def test_settings_survive_as_json() -> None:
    """The options also hold fields that are not part of the YAML, and which of several inputs was chosen."""
    settings = Whole(Wire("h", 2.0), "n", names=("a",), some=("b",), hidden=3)
    assert settings == read_json(Whole, to_json(settings))


def test_fields_without_a_description_are_no_settings_of_the_yaml() -> None:
    """They are known to anyone who reads JSON."""
    described = [name for name, setting in settings_of(Whole).items() if setting.description is not None]
    assert [name for name in settings_of(Whole) if name not in described] == ["hidden"]


@pytest.mark.parametrize(
    ("given", "setting", "problem"),
    [
        ({"name": None}, "name", "is missing"),
        ({"nmae": "n"}, "nmae", "is not known; there are: place, name"),
        ({"place": {}}, "place", "must have exactly one of disc, wire, but has: []"),
        ({"place": {"disc": {"folder": "f"}, "wire": {"host": "h"}}}, "place", "exactly one"),
        ({"place": {"wire": {}}}, "place.wire.host", "is missing"),
        ({"place": {"disc": {"folder": " "}}}, "place.disc.folder", "is empty"),
        ({"colour": "green"}, "colour", "must be one of red, blue, but is: 'green'"),
        ({"colours": {"x": "green"}}, "colours.x", "must be one of red, blue"),
        ({"rest_s": float("inf")}, "rest_s", "must be a finite number"),
        ({"rest_s": 1e30}, "rest_s", "must be at most 3155760000, the seconds of 100 years, but is: 1e+30"),
    ],
)
def test_what_cannot_be_read_is_named(given: dict[str, Any], setting: str, problem: str) -> None:
    """An error names the setting within its groups, and what it may be."""
    with pytest.raises(SettingError) as caught:
        read_settings(Whole, GIVEN | given, Path())
    assert (setting, True) == (caught.value.setting, problem in caught.value.problem)


def test_values_made_in_python_are_checked() -> None:
    """A text that is not a member, and a blank one, are refused by their names."""
    green: Any = "green"
    with pytest.raises(SettingError, match=r"`x\.colours\.a` must be one of red, blue"):
        check_members(Whole(Disc("f"), "n", colours={"a": green}), "x.")
    with pytest.raises(SettingError, match=r"`x\.name` is missing or empty"):
        check_filled(Whole(Disc("f"), " "), "x.")


@pytest.mark.parametrize(
    ("value", "bounds", "problem"),
    [
        (0, {"above": 0}, "must be above 0, but is: 0"),
        (2, {"at_least": 0, "at_most": 1}, "must be at least 0 and at most 1, but is: 2"),
        (float("nan"), {"above": 0}, "must be a finite number, but is: nan"),
        (float("inf"), {}, "must be a finite number, but is: inf"),
        (2678401, {"at_most": 2678400}, "must be at most 2678400, but is: 2678401"),
        (None, {"above": 0}, None),
        (1, {"above": 0, "at_least": 1, "at_most": 1}, None),
    ],
)
def test_a_range_is_stated_with_the_number_outside_it(
    value: float | None, bounds: dict[str, float], problem: str | None
) -> None:
    """An error names the setting, its limits and its value; a missing number is in every range."""
    settings = SimpleNamespace(rest_s=value)
    expected = (
        nullcontext() if problem is None else pytest.raises(SettingError, match=f"`x.rest_s` {problem}")
    )
    with expected:
        check_range(settings, ["rest_s"], **bounds, place="x.")
