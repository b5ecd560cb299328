"""Templates in a pipeline's YAML, which are environment variables alone, and the values that they give."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from cdc_platform.components.strict_yaml import MOST_INTEGER, Names
from cdc_platform.errors import SettingError

_QUOTED: Final = r"""(?:'[^'\\]*'|"[^"\\]*")"""
_TEMPLATE: Final = re.compile(
    rf"(?P<known>\{{\{{\s*env(?:\.(?!__)[A-Za-z_]\w*|\(\s*{_QUOTED}\s*(?:,\s*{_QUOTED}\s*)?\))\s*\}}\}})"
    r"|\{[{%#](?:[^{}]{0,60}[%#}]?\})?",
    re.ASCII,
)
"""A template that is evaluated, or where another one begins, with as much of it as a message shows."""


def check_templates(value: object, names: Names = ()) -> None:
    """Refuse every template but that of a variable: Jinja's expressions can run any code.

    Args:
        value: all that may hold texts with templates.
        names: the keys above it.

    Raises:
        SettingError: there is one; its key and the template are named.
    """
    for keys, text in texts_of(value, names):
        for match in _TEMPLATE.finditer(text):
            if match["known"] is None:
                raise SettingError(
                    ".".join(keys),
                    f"holds the template {match[0]!r}, which is not evaluated; only environment variables "
                    "are: {{ env.X }}, or {{ env('X', 'VALUE') }} with a default",
                )


def check_integers(value: object) -> None:
    """Refuse an integer of more than 64 bits, which a variable may hold: nothing can convert or print it.

    Raises:
        SettingError: there is one; its key is named.
    """
    for names, leaf in _leaves(value, ()):
        if isinstance(leaf, int) and not -MOST_INTEGER <= leaf <= MOST_INTEGER:
            raise SettingError(".".join(names), "is an integer of more than 64 bits; use a smaller one")


def texts_of(value: object, names: Names = ()) -> Iterator[tuple[Names, str]]:
    """Yield every text of a value, with its keys."""
    return ((keys, leaf) for keys, leaf in _leaves(value, names) if isinstance(leaf, str))


def _leaves(value: object, names: Names) -> Iterator[tuple[Names, object]]:
    """Yield what a value holds that is neither a group nor a list, with its keys."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, (*names, str(name)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*names, str(index)))
    else:
        yield names, value
