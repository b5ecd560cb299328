"""Errors as users read them."""

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.damage import find_damage, find_full
from cdc_platform.spark.session.session_failures import find_session_failure


def expected_error(error: Exception) -> CdcError | None:
    """Return an error whose message is all that a user needs; None for an error that needs its traceback."""
    if isinstance(error, CdcError):
        return error
    return find_full(error) or find_damage(error) or find_session_failure(error)


def error_text(error: Exception) -> str:
    """Return the kind of an error and its message; of a foreign one the first line: it may have a stack."""
    expected = expected_error(error)
    text = str(expected) if expected is not None else next(iter(str(error).splitlines()), "")
    return f"{type(expected or error).__name__}: {text}"
