"""Templates in a pipeline's YAML, which may only be environment variables, and checks of their values."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from cdc_platform.components.strict_yaml import MAX_INTEGER, Names
from cdc_platform.errors import SettingError

_QUOTED: Final = r"""(?:'[^'\\]*'|"[^"\\]*")"""
_TEMPLATE: Final = re.compile(
    rf"(?P<variable>\{{\{{\s*env(?:\.(?!__)[A-Za-z_]\w*|\(\s*{_QUOTED}\s*(?:,\s*{_QUOTED}\s*)?\))\s*\}}\}})"
    r"|\{[{%#](?:[^{}]{0,60}[%#}]?\})?",
    re.ASCII,
)
"""An allowed template, or the start of any other one, with as much of it as a message shows."""


def check_templates(value: object, names: Names = ()) -> None:
    """Reject every template except environment variables: Jinja's expressions can run any code.

    Args:
        value: a value that may contain strings with templates.
        names: the keys that lead to it.

    Raises:
        SettingError: it contains another template; the error names its key and the template.
    """
    for keys, text in texts_of(value, names):
        for match in _TEMPLATE.finditer(text):
            if match["variable"] is None:
                raise SettingError(
                    ".".join(keys),
                    f"contains the template {match[0]!r}, which is not evaluated; only environment variables "
                    "are: {{ env.X }}, or {{ env('X', 'VALUE') }} with a default",
                )


def check_integers(value: object) -> None:
    """Reject integers of more than 64 bits, which a variable may contain: nothing can convert or print them.

    Raises:
        SettingError: the value contains one; the error names its key.
    """
    for names, leaf in _leaves(value, ()):
        if isinstance(leaf, int) and not -MAX_INTEGER <= leaf <= MAX_INTEGER:
            raise SettingError(".".join(names), "is an integer of more than 64 bits; use a smaller one")


def texts_of(value: object, names: Names = ()) -> Iterator[tuple[Names, str]]:
    """Yield every string in a value, with its keys."""
    return ((keys, leaf) for keys, leaf in _leaves(value, names) if isinstance(leaf, str))


def _leaves(value: object, names: Names) -> Iterator[tuple[Names, object]]:
    """Yield every value in a value that is neither a group nor a list, with its keys."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, (*names, str(name)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*names, str(index)))
    else:
        yield names, value
