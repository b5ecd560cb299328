"""Groups of texts in a pipeline's YAML, such as a catalog's properties."""

from collections.abc import Mapping
from typing import Any, Final

import dagster as dg

_MARK: Final = "\0"


def says_texts(description: str) -> dg.Resolver:
    """Describe a group of texts, each of which stays the text that it is once its template is filled in."""
    resolver: dg.Resolver = dg.Resolver(_resolve, description=description, inject_before_resolve=False)
    return resolver


def _resolve(context: dg.ResolutionContext, texts: Mapping[str, str]) -> dict[str, Any]:
    return {name: _resolve_text(context.at_path(name), text) for name, text in texts.items()}


def _resolve_text(context: dg.ResolutionContext, text: str) -> object:
    """Return a text with its template filled in; None where it is nothing but a variable that is not set."""
    # Dagster makes a value of what looks like a Python literal: 123 of a password of digits, 1.1 of a version
    # 1.10. Nothing that begins with this mark does.
    return (
        None
        if context.resolve_value(text) is None
        else context.resolve_value(_MARK + text).removeprefix(_MARK)
    )
