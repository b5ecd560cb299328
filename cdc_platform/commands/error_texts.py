"""Errors as users read them."""

from pathlib import Path
from sysconfig import get_path
from typing import Final

from cdc_platform.errors import CdcError
from cdc_platform.lake.catalog.damage import find_damage, find_full
from cdc_platform.printing.lines import print_line, print_text
from cdc_platform.spark.session.session_failures import find_session_failure

ERROR_PAGES: Final = (
    Path(__file__).parents[2] / "docs" / "errors",
    Path(get_path("data")) / "share" / "doc" / "cdc_platform" / "errors",
)
"""Folders that may have the page of each error: that of a checkout, and that of an installed wheel."""


def expected_error(error: Exception) -> CdcError | None:
    """Return an error whose message is all that a user needs; None for an error that needs its traceback."""
    if isinstance(error, CdcError):
        return error
    return find_full(error) or find_damage(error) or find_session_failure(error)


def error_text(error: Exception) -> str:
    """Return the kind of an error and its message; of a foreign one the first line: it may have a stack."""
    known_error = expected_error(error)
    text = str(known_error) if known_error is not None else next(iter(str(error).splitlines()), "")
    return f"{type(known_error or error).__name__}: {text}"


def print_error(error: CdcError) -> None:
    """Print the kind of an error, its message, and the place of its page."""
    name = type(error).__name__
    print_text(f"{name}: {error}", "red", err=True)
    page = next((page for folder in ERROR_PAGES if (page := folder / f"{name}.md").exists()), None)
    if page is not None:
        print_line(f"See {page}", err=True)
