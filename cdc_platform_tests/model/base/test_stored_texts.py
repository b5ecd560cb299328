"""Texts of the lake, read back: the shape that was written, or damage that names table and row."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from cdc_platform.errors import LakeDamaged
from cdc_platform.model.base.stored_texts import as_shape, parse_stored, read_stored


@dataclass(frozen=True)
class Part:
    """A part of a text."""

    name: str
    number: int | None
    parts: "dict[str, Part]" = field(default_factory=dict)
    pairs: tuple[tuple[str, int], ...] = ()


@pytest.mark.parametrize(
    ("shape", "value", "expected"),
    [
        (int, 2**70, 2**70),
        (float, 1, 1),
        (dict[str, Any], {"a": [None]}, {"a": [None]}),
        (set[str], ["a", "a"], {"a"}),
        (tuple[str, int], ["a", 1], ("a", 1)),
        (dict[str, tuple[str, int | None]], {"a": ["b", None]}, {"a": ("b", None)}),
        (
            Part,
            {"name": "a", "number": None, "parts": {"b": {"name": "b", "number": 1, "pairs": [["x", 2]]}}},
            Part("a", None, {"b": Part("b", 1, pairs=(("x", 2),))}),
        ),
    ],
)
def test_a_value_has_its_shape(shape: Any, value: Any, expected: object) -> None:
    """JSON becomes collections and dataclasses, in each other and with defaults."""
    assert expected == as_shape(value, shape) == parse_stored(json.dumps(value), shape)


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        (int, True),  # a boolean is not an integer
        (int, "1"),
        (str, None),
        (list[int], {"a": 1}),
        (dict[str, int], [["a", 1]]),
        (dict[str, int], {"a": 1.0}),
        (tuple[str, int], ["a"]),
        (Part, {"name": "a"}),  # a field is missing
        (Part, {"name": "a", "number": 1, "other": 2}),  # one is unknown
        (Part, []),
        (int | None, "a"),
    ],
)
def test_another_shape_is_refused(shape: Any, value: Any) -> None:
    """A value of another type, and an object with other fields, is an error, and never guessed at."""
    with pytest.raises(ValueError, match=r"expected|missing"):
        as_shape(value, shape)


@pytest.mark.parametrize("text", [None, "", "{", "[" * 100_000, '{"a": NaN}', "9" * 5000])
def test_what_cannot_be_read_is_damage(text: str | None) -> None:
    """The error names table and row, in one line, and says what to do."""
    with pytest.raises(LakeDamaged, match=r"its table `files`, row `a b`: what it holds .*Restore") as damage:
        read_stored(lambda sentence: parse_stored(sentence, dict[str, int]), text, "files", "row `a\nb`")
    assert len(str(damage.value).splitlines()) == 1
