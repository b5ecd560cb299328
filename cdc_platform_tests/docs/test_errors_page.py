"""The page of errors follows the tree of errors."""

import os
import re
from pathlib import Path
from typing import Final

from cdc_platform import errors
from cdc_platform.errors import CdcError

PAGE: Final = Path(__file__).parents[2] / "docs" / "errors.md"
ENTRY: Final = re.compile(r"^(#{2,3} (\w+)\n\n)(.*)(\n\n)([^#\n].*)$", re.MULTILINE)
"""Heading of an error, its meaning, and what to do."""
KINDS: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, CdcError) and kind is not CdcError
}


def meaning_of(kind: type[CdcError]) -> str:
    """Return the first sentence of an error's docstring, and whether a retry helps."""
    assert kind.__doc__ is not None
    retry = "A retry may help." if kind.retryable else "A retry does not help."
    return f"{re.sub(r'; ``.*', '.', kind.__doc__.splitlines()[0])} {retry}"


def test_the_page_of_errors_is_that_of_the_code() -> None:
    """Each error has its heading, meaning and retry, in the tree's order; `UPDATE_GOLDEN=1` writes them."""
    text = PAGE.read_text(encoding="utf-8")
    expected = ENTRY.sub(lambda entry: f"{entry[1]}{meaning_of(KINDS[entry[2]])}{entry[4]}{entry[5]}", text)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(expected, encoding="utf-8")
    else:
        assert expected == text, "made by UPDATE_GOLDEN=1 pytest -n0 cdc_platform_tests/docs"
    assert list(KINDS) == [entry[1] for entry in ENTRY.findall(text)]
