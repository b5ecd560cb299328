"""Filters of pyiceberg from values instead of text, so no value needs quoting."""

from collections.abc import Callable, Collection
from functools import reduce
from math import isnan
from typing import Any, Final

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThanOrEqual,
)

_Predicate = Callable[..., BooleanExpression]

# Type checkers take the arguments from the fields of these classes, and not from their constructors.
_EQUAL: Final[_Predicate] = EqualTo
_IN: Final[_Predicate] = In
_IS_NULL: Final[_Predicate] = IsNull
_IS_NAN: Final[_Predicate] = IsNaN
_AT_LEAST: Final[_Predicate] = GreaterThanOrEqual
_ABOVE: Final[_Predicate] = GreaterThan
_AT_MOST: Final[_Predicate] = LessThanOrEqual


def equals(column: str, value: Any) -> BooleanExpression:
    """Return the filter of the rows that have a value in a column; None finds NULL, and NaN finds NaN."""
    if isinstance(value, float) and isnan(value):
        return _IS_NAN(column)
    return _IS_NULL(column) if value is None else _EQUAL(column, value)


def above(column: str, value: int | str) -> BooleanExpression:
    """Return the filter of rows whose value is greater."""
    return _ABOVE(column, value)


def is_any(column: str, values: Collection[Any]) -> BooleanExpression:
    """Return the filter of the rows that have one of some values in a column."""
    return _IN(column, set(values))


def between(column: str, low_inclusive: Any, high_inclusive: Any) -> BooleanExpression:
    """Return the filter of the rows with a value in a closed interval."""
    return And(_AT_LEAST(column, low_inclusive), _AT_MOST(column, high_inclusive))


def at_most(column: str, high_inclusive: Any) -> BooleanExpression:
    """Return the filter of the rows with a value up to a bound."""
    return _AT_MOST(column, high_inclusive)


def all_of(*conditions: BooleanExpression) -> BooleanExpression:
    """Return the filter of the rows that meet all conditions."""
    everything: BooleanExpression = AlwaysTrue()
    return reduce(And, conditions, everything)
