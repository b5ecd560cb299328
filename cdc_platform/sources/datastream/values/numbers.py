"""Numbers in the form of the change log."""

import math
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Final

import numpy as np

from cdc_platform.model.base.number_texts import decimal_number
from cdc_platform.model.schema.table_schema import MAX_PLAIN_INTEGER

_EXACT: Final = Context(prec=20_000, Emax=19_999, Emin=-19_999, traps=[Inexact, InvalidOperation, Overflow])
_NAN: Final = "NaN"


def plain_integer(value: int) -> int | str:
    """Return a 64-bit integer as a number, or as text if readers of JSON could round it."""
    return value if -MAX_PLAIN_INTEGER <= value <= MAX_PLAIN_INTEGER else str(value)


def double(value: float) -> float | str:
    """Return a float in a form for JSON: NaN and the infinities are texts."""
    if math.isfinite(value):
        return value
    return _NAN if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def single(value: float) -> float | str:
    """Return a 32-bit float as a double, so that columns of both types read the same number."""
    if not math.isfinite(value):
        return double(value)
    with np.errstate(over="ignore"):
        float_value = np.float32(value)
    if not np.isfinite(float_value):
        raise ValueError(f"{value} is beyond a float of 32 bits")
    return float(float_value)


def decimal_text(value: Any, precision: int, scale: int) -> str:
    """Return a decimal with exactly as many digits after the point as its type.

    Raises:
        ValueError: the value is not a number, or has more digits than its type.
    """
    try:
        number = _EXACT.quantize(decimal_number(value), Decimal((0, (1,), -scale)))
    except (Inexact, InvalidOperation, Overflow):
        raise ValueError(
            f"{value!r} is not a decimal of {precision} digits, {scale} of them after the point"
        ) from None
    if not number.is_finite() or (number and number.adjusted() + 1 > precision - scale):
        raise ValueError(f"{value!r} has more digits than a decimal of {precision}, {scale} after the point")
    return format(number or abs(number), "f")
