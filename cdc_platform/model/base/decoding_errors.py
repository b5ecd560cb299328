"""Errors that malformed input causes in decoders."""

from typing import Final

MALFORMED: Final = (
    *(ArithmeticError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)
