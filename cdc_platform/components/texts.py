"""Texts in a pipeline's YAML, such as names and a catalog's properties."""

from collections.abc import Mapping, Sequence
from typing import Final

import dagster as dg

_MARK: Final = "\0"


def says_text(description: str) -> dg.Resolver:
    """Describe a text, or None, that stays the text that it is once its template is filled in."""
    resolver: dg.Resolver = dg.Resolver(_resolve_text, description=description, inject_before_resolve=False)
    return resolver


def says_names(description: str) -> dg.Resolver:
    """Describe a list of texts, or None, for each of which the same holds."""
    resolver: dg.Resolver = dg.Resolver(_resolve_list, description=description, inject_before_resolve=False)
    return resolver


def says_texts(description: str) -> dg.Resolver:
    """Describe a group of texts, for each of which the same holds."""
    resolver: dg.Resolver = dg.Resolver(_resolve_group, description=description, inject_before_resolve=False)
    return resolver


def _resolve_group(context: dg.ResolutionContext, texts: Mapping[str, str] | str) -> object:
    if isinstance(texts, str):
        return context.resolve_value(texts)  # a template of the whole group
    return {name: _resolve_text(context.at_path(name), text) for name, text in texts.items()}


def _resolve_list(context: dg.ResolutionContext, texts: Sequence[str] | str | None) -> object:
    if texts is None:
        return None
    if isinstance(texts, str):
        return context.resolve_value(texts)  # a template of the whole list
    return [_resolve_text(context.at_path(place), text) for place, text in enumerate(texts)]


def _resolve_text(context: dg.ResolutionContext, text: str | None) -> object:
    """Return a text with its template filled in; None where it is nothing but a variable that is not set."""
    if text is None or context.resolve_value(text) is None:
        return None
    # Dagster makes a value of what looks like a Python literal: 123 of a password of digits, 1.1 of a version
    # 1.10. Nothing that begins with this mark does.
    return str(context.resolve_value(_MARK + text)).removeprefix(_MARK)
