"""The tree of errors, as it is drawn and as it is."""

import re

from cdc_platform import errors
from cdc_platform.errors import CdcError

LINE = re.compile(r"^( *)[*x+-] (\w+)(.*)$", re.MULTILINE)
RETRY = "(retry)"


def drawn() -> dict[str, tuple[str, bool]]:
    """Return the parent of each error in the module's docstring, and whether it is retried."""
    path: list[str] = []
    tree = {}
    for indent, name, text in LINE.findall(errors.__doc__ or ""):
        path = [*path[: len(indent) // 2], name]
        tree[name] = (path[-2] if len(path) > 1 else "Exception", text.endswith(RETRY))
    return tree


def test_the_drawn_tree_is_the_tree() -> None:
    """Each error of the module is drawn once, below its own base, with its `retryable`; and no other is."""
    defined = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CdcError)
    ]
    assert {kind.__name__: (kind.__bases__[0].__name__, kind.retryable) for kind in defined} == drawn()
