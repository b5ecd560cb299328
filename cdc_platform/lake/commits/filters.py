"""Filters of pyiceberg from values instead of text, so no value needs quoting."""

from collections.abc import Callable, Collection
from functools import reduce
from math import isnan
from typing import Any, Final, cast

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
_Bound = Callable[[str, Any], BooleanExpression]

# Type checkers take the arguments from the fields of these classes, and not from their constructors. `In`
# goes through its values twice, so that it would find none of an iterator's.
above: Final = cast("_Bound", GreaterThan)
at_least: Final = cast("_Bound", GreaterThanOrEqual)
at_most: Final = cast("_Bound", LessThanOrEqual)
is_any: Final = cast("Callable[[str, Collection[Any]], BooleanExpression]", In)
"""Filters of the rows whose value in a column is above or at a bound, or one of some values."""
_EQUAL: Final[_Predicate] = EqualTo
_IS_NULL: Final[_Predicate] = IsNull
_IS_NAN: Final[_Predicate] = IsNaN


def equals(column: str, value: Any) -> BooleanExpression:
    """Return the filter of the rows that have a value in a column; None finds NULL, and NaN finds NaN."""
    if isinstance(value, float) and isnan(value):
        return _IS_NAN(column)
    return _IS_NULL(column) if value is None else _EQUAL(column, value)


def between(column: str, low_inclusive: Any, high_inclusive: Any) -> BooleanExpression:
    """Return the filter of the rows with a value in a closed interval."""
    return And(at_least(column, low_inclusive), at_most(column, high_inclusive))


def all_of(*conditions: BooleanExpression) -> BooleanExpression:
    """Return the filter of the rows that meet all conditions."""
    everything: BooleanExpression = AlwaysTrue()
    return reduce(And, conditions, everything)
