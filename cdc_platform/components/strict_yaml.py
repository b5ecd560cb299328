"""The subset of YAML for pipelines' files: strings, numbers, booleans, lists and groups."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from cdc_platform.errors import SettingError

MAX_NODES: Final = 100_000
"""Maximum number of values of a document; a value counts once for each reference to it."""
_MAX_CHARACTERS: Final = 1_000
"""Maximum number of characters of a number in base 60."""
MAX_INTEGER: Final = 2**63 - 1
_TAG: Final = "tag:yaml.org,2002:"
_STR, _MERGE, _TIMESTAMP = f"{_TAG}str", f"{_TAG}merge", f"{_TAG}timestamp"
_TAGS: Final[dict[type[yaml.Node], frozenset[str]]] = {
    yaml.ScalarNode: frozenset({_STR, *(f"{_TAG}{name}" for name in ("int", "float", "bool", "null"))}),
    yaml.SequenceNode: frozenset({f"{_TAG}seq"}),
    yaml.MappingNode: frozenset({f"{_TAG}map"}),
}
"""Allowed tags of each kind of node: the types of JSON, without bytes, sets, dates or objects."""
Names = tuple[str, ...]
"""Keys from the outermost to the innermost."""


class Unusable(yaml.YAMLError):
    """A part of a document is YAML, but outside the subset for pipelines' files."""

    def __init__(self, names: Names, node: yaml.Node, problem: str) -> None:
        self.setting = f"{dotted_name(names)} (line {node.start_mark.line + 1})"
        self.problem = problem
        super().__init__(f"{self.setting} {problem}")


class _StrictLoader(yaml.SafeLoader):
    """Loads plain values only, and rejects duplicate keys: YAML would silently keep the last one."""

    # Dagster, too, reads a date without quotes as a string.
    yaml_implicit_resolvers = {  # noqa: RUF012  as PyYAML declares it
        first: [each for each in resolvers if each[0] != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_document(self) -> yaml.Node | None:
        """Return a document, checked before its references and merge keys are followed."""
        node: yaml.Node | None = super().compose_document()
        if node is not None:
            if _weigh(node, {}) > MAX_NODES:
                problem = f"has more than {MAX_NODES:,} values once its references are followed"
                raise Unusable((), node, f"{problem}; write the values without references")
            self._check(node, (), set())
        return node

    def _check(self, node: yaml.Node, names: Names, node_ids: set[int]) -> None:
        if id(node) in node_ids:
            return
        node_ids.add(id(node))
        if node.tag not in _TAGS[type(node)]:
            tag = node.tag.replace(_TAG, "!!")
            raise Unusable(names, node, f"has the tag `{tag}`, which no setting needs; remove it")
        if isinstance(node, yaml.ScalarNode):
            self._check_scalar(node, names)
        elif isinstance(node, yaml.MappingNode):
            for name, value in _items(node, names):
                self._check(value, (*names, name) if name else names, node_ids)
        else:
            for index, value in enumerate(node.value):
                self._check(value, (*names, str(index)), node_ids)

    def _check_scalar(self, node: yaml.ScalarNode, names: Names) -> None:
        kind = node.tag.removeprefix(_TAG)
        if node.tag != _STR and ":" in node.value and len(node.value) > _MAX_CHARACTERS:
            # A number in base 60; converting it takes time quadratic in its length.
            raise Unusable(names, node, f"is not a value of YAML's type `{kind}`; put quotes around a text")
        _refuse_nul(node, names)
        try:
            value = self.construct_object(node)
        except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError) as error:
            # PyYAML converts the text of a scalar without checking that it matches its tag.
            raise Unusable(names, node, f"is not a value of YAML's type `{kind}`; change it") from error
        if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise Unusable(names, node, "is an integer of more than 64 bits; put quotes around a text")


def _items(node: yaml.MappingNode, names: Names) -> Iterator[tuple[str, yaml.Node]]:
    """Yield the keys of a group with their values; the key is empty for the value of a merge key."""
    keys = set[str]()
    for key, value in node.value:
        if key.tag == _MERGE:
            yield "", value
            continue
        if not isinstance(key, yaml.ScalarNode) or key.tag != _STR:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            raise Unusable((*names, name), key, "is not a text, but a key must be one; put quotes around it")
        _refuse_nul(key, names)
        if key.value in keys:
            raise Unusable((*names, key.value), key, "occurs twice; remove one, since only one would count")
        keys.add(key.value)
        yield key.value, value


def _refuse_nul(node: yaml.ScalarNode, names: Names) -> None:
    if "\0" in node.value:
        raise Unusable(names, node, "contains a NUL character, which no name or path may have; remove it")


def _weigh(node: yaml.Node, weights: dict[int, int | None]) -> int:
    """Return the number of values in a node; a node that is visited again meanwhile contains itself."""
    weight = weights.setdefault(id(node), 0)
    if weight is None:
        raise Unusable((), node, "contains itself; write the values without references")
    if weight == 0:
        weights[id(node)] = None
        below = node.value if isinstance(node, yaml.CollectionNode) else ()
        inner = (each for item in below for each in (item if isinstance(item, tuple) else (item,)))
        weights[id(node)] = weight = 1 + sum(_weigh(each, weights) for each in inner)
    return weight


def dotted_name(names: Names) -> str:
    """Return the dotted name of a setting, without the prefix `attributes`."""
    return ".".join(names[1:] if names[:1] == ("attributes",) and len(names) > 1 else names) or "document"


def parse(path: Path) -> list[Any]:
    """Return the documents of a file; None for an empty document.

    Raises:
        SettingError: the file cannot be read, or contains more than plain YAML.
    """
    try:
        return list(yaml.load_all(path.read_text(encoding="utf-8"), _StrictLoader))
    except OSError as error:
        raise SettingError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError(str(path), "is not a text in UTF-8") from error
    except Unusable as error:
        raise SettingError(f"{path}: {error.setting}", error.problem) from None
    except RecursionError as error:
        raise SettingError(str(path), "is nested too deeply to be a pipeline's") from error
    except yaml.YAMLError as error:
        raise SettingError(str(path), f"is not YAML: {_yaml_error_text(error)}") from error


def lines_of(path: Path) -> list[dict[str, int]]:
    """Return the line of each setting, by its dotted name, for each document that is not empty.

    The empty name has the first line of the document.

    Raises:
        SettingError: see `parse`.
    """
    parse(path)
    nodes = yaml.compose_all(path.read_text(encoding="utf-8"), _StrictLoader)
    return [
        {"": node.start_mark.line + 1, **dict(_lines(node, ()))}
        for node in nodes
        if node is not None and node.tag != f"{_TAG}null"
    ]


def _lines(node: yaml.Node, names: Names) -> Iterator[tuple[str, int]]:
    pairs: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        pairs = [(key.value, key, value) for key, value in node.value if key.tag != _MERGE]
    elif isinstance(node, yaml.SequenceNode):
        pairs = [(str(index), value, value) for index, value in enumerate(node.value)]
    for name, place, value in pairs:
        yield dotted_name((*names, name)), place.start_mark.line + 1
        yield from _lines(value, (*names, name))


def _yaml_error_text(error: yaml.YAMLError) -> str:
    """Return PyYAML's error in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem or error.context} (line {error.problem_mark.line + 1})"
    return " ".join(str(error).split())
