"""Malformed inputs: documented ones with a defect."""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

Tree: TypeAlias = Any
"""Any value of JSON."""
Step: TypeAlias = tuple[int, Any]
"""Replacement of a part of a tree: its number from the beginning, and the new part."""

_RAW: Final = "\ue000"
"""Begins a text that is written without quotes, as it is."""
_GONE: Final = object()
RAW: Final = (
    *("1e99999999999999999999", "-1e-99999999999999999999", "1e999999999", "1e999999", "1e400", "-0.0"),
    *("1e-7", "NaN", "-Infinity", str(2**63), str(-(2**64)), str(10**30), "9" * 400, "9" * 5000, "0.1"),
    *("[" * depth + "]" * depth for depth in (480, 900, 990)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (480, 900, 990)),
)
TEXTS: Final = (
    *("\ud800", "a\udfff", "\ud83d\ude00", "", " ", "\0", "\x1b[2J", "\u202e", "\uffff", "a" * 5000),
    *("null", "{", '{"a":1}', '"\\ud800"', '{"\\ud800":1}', "1e999999999", "NaN", "Infinity", "-inf"),
    *("ad\u0131", "_pos", "__deleted", "__key_0", "2026-02-30", "9999-12-31T23:59:59.999999Z", "-1", "1_0"),
    *("0001-01-01T00:00:00+14:00", "24:00:00", "AAAA", "====", "\\x0g", "true", "[" * 2000, "a.b.c", "`"),
)


def nested(depth: int) -> Tree:
    """Return arrays and objects in each other."""
    tree: Tree = 1
    for level in range(depth):
        tree = [tree] if level % 2 else {"a": tree}
    return tree


def _wrong() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.sampled_from(TEXTS),
        st.sampled_from(RAW).map(lambda raw: _RAW + raw),
        st.sampled_from([None, True, False, [], {}, [None], [[]], {"": None}, {"a": "b"}, 0, -1]),
        st.sampled_from([30, 200, 480]).map(nested),
        st.sampled_from([_GONE]),
        st.text(max_size=8),
        st.integers(-(2**70), 2**70),
    )


def steps() -> st.SearchStrategy[list[Step]]:
    """Return a few replacements."""
    return st.lists(st.tuples(st.integers(0, 400), _wrong()), min_size=1, max_size=3)


def changed(tree: Tree, made: Sequence[Step]) -> Tree:
    """Return a tree with parts replaced, left out, or called otherwise."""
    tree_copy = deepcopy(tree)
    for number, wrong in made:
        places = list(_places(tree_copy))
        if not places:
            return wrong if wrong is not _GONE else None
        holder, key = places[number // 2 % len(places)]
        if wrong is _GONE:
            del holder[key]
        elif number % 2 and isinstance(holder, dict) and isinstance(wrong, str):
            holder[wrong.removeprefix(_RAW)] = holder.pop(key)
        else:
            holder[key] = deepcopy(wrong)
    return tree_copy


def _places(tree: Tree) -> "list[tuple[Any, Any]]":
    """Return every part of a tree, as what holds it and its key there."""
    places, trees = [], [tree]
    while trees:
        holder = trees.pop()
        parts = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, part in parts:
            places.append((holder, key))
            if isinstance(part, dict | list):
                trees.append(part)
    return places


def written(tree: Tree) -> str:
    """Return the JSON of a tree, parts of which may be none that Python has."""
    text = json.dumps(tree)
    for raw in RAW:
        text = text.replace(json.dumps(_RAW + raw), raw)
    return text


def plain(tree: Tree) -> Tree:
    """Return a tree that Python can have, with all else as texts."""
    if isinstance(tree, dict):
        return {plain(name): plain(item) for name, item in tree.items()}
    if isinstance(tree, list):
        return [plain(item) for item in tree]
    return tree.removeprefix(_RAW) if isinstance(tree, str) else tree


_DEEP: Final = 20
"""Deeper ones the tests cannot write."""


def listed(tree: Tree, depth: int = 0) -> Tree:
    """Return a tree of what Spanner's values can be: there are no objects, and texts are Unicode."""
    if isinstance(tree, dict | list):
        items = tree.values() if isinstance(tree, dict) else tree
        return [listed(item, depth + 1) for item in items] if depth < _DEEP else []
    return tree.encode(errors="backslashreplace").decode() if isinstance(tree, str) else tree


def trees(seeds: Sequence[Tree]) -> st.SearchStrategy[Tree]:
    """Return seeds with something wrong in them."""
    return st.builds(changed, st.sampled_from(seeds), steps())


def bent(seeds: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return octets that are cut, changed, or have others in them."""
    chunks: st.SearchStrategy[Callable[[bytes], bytes]] = st.one_of(
        st.floats(0, 1).map(lambda at: lambda data: data[: int(len(data) * at)]),
        st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=9)).map(
            lambda edit: lambda data: _replaced(data, *edit)
        ),
        st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=9)).map(
            lambda edit: lambda data: _inserted(data, *edit)
        ),
    )
    return st.builds(_bend, seeds, st.lists(chunks, min_size=1, max_size=3))


def _replaced(data: bytes, at: float, part: bytes) -> bytes:
    start = int(len(data) * at)
    return data[:start] + part + data[start + len(part) :]


def _inserted(data: bytes, at: float, part: bytes) -> bytes:
    start = int(len(data) * at)
    return data[:start] + part + data[start:]


def _bend(data: bytes, chunks: Sequence[Callable[[bytes], bytes]]) -> bytes:
    for chunk in chunks:
        data = chunk(data)
    return data
