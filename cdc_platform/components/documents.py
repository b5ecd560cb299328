"""The YAML documents of a file that declare pipelines."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cdc_platform.errors import SettingError

KEYS: Final = frozenset({"type", "attributes", "requirements", "post_processing"})
"""What a component's document may hold, by Dagster; not `template_vars_module`, whose code nothing runs."""
MOST_NODES: Final = 100_000
"""Values of a document, each counted as often as it is referred to."""
MERGE: Final = "tag:yaml.org,2002:merge"


class RepeatedKey(yaml.YAMLError):
    """A key stands twice in one mapping; the text is its name, with its line."""


class EndlessDocument(yaml.YAMLError):
    """References make a document endless, or far larger than its text; the text says which."""


class _StrictLoader(yaml.SafeLoader):
    """Loads what is safe, and no key twice: YAML would let the last one win without a word."""

    def compose_document(self) -> yaml.Node | None:
        """Return a document before its references and merge keys are followed."""
        node = super().compose_document()
        if node is not None and _weigh(node, {}) > MOST_NODES:
            raise EndlessDocument(f"has more than {MOST_NODES:,} values once its references are followed")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Return a mapping as it is written, before merge keys bring in what it overrides on purpose."""
        node = super().compose_mapping_node(anchor)
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
                if key.value in seen:
                    raise RepeatedKey(f"{key.value} (line {key.start_mark.line + 1})")
                seen.add(key.value)
        return node


def _weigh(node: yaml.Node, weights: dict[int, int | None]) -> int:
    """Return how many values a node holds; what has no weight yet while it is looked at holds itself."""
    known = weights.setdefault(id(node), 0)
    if known is None:
        raise EndlessDocument(f"holds itself (line {node.start_mark.line + 1})")
    if known == 0:
        weights[id(node)] = None
        below = node.value if isinstance(node, yaml.CollectionNode) else ()
        inner = (each for item in below for each in (item if isinstance(item, tuple) else (item,)))
        weights[id(node)] = known = 1 + sum(_weigh(each, weights) for each in inner)
    return known


@dataclass(frozen=True)
class Document:
    """One declared pipeline.

    ``place`` names its file in messages, and which document it is of several.
    """

    place: str
    type_name: str
    attributes: Mapping[str, Any]


def read_documents(path: Path, type_names: Collection[str]) -> tuple[Document, ...]:
    """Return the documents of a file, which are separated by `---`; each must declare one of some components.

    Raises:
        SettingError: the file cannot be read, or one of its documents declares something else.
    """
    contents = [content for content in _parse(path) if content is not None]
    if not contents:
        raise SettingError(f"{path}: type", f"must be {_listed(type_names)}, but the file is empty")
    return tuple(
        _as_document(f"{path} (document {number})" if len(contents) > 1 else str(path), content, type_names)
        for number, content in enumerate(contents, start=1)
    )


def _parse(path: Path) -> list[Any]:
    try:
        return list(yaml.load_all(path.read_text(encoding="utf-8"), _StrictLoader))
    except OSError as error:
        raise SettingError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError(str(path), "is not a text in UTF-8") from error
    except RepeatedKey as error:
        raise SettingError(f"{path}: {error}", "stands there twice; only one of them would count") from error
    except EndlessDocument as error:
        raise SettingError(str(path), f"{error}; write what it means") from error
    except RecursionError as error:
        raise SettingError(str(path), "is nested too deeply to be a pipeline's") from error
    except yaml.YAMLError as error:
        raise SettingError(str(path), f"is not YAML: {error}") from error


def _as_document(place: str, content: object, type_names: Collection[str]) -> Document:
    if not isinstance(content, dict) or content.get("type") not in type_names:
        raise SettingError(f"{place}: type", f"must be {_listed(type_names)}")
    unknown = sorted(set(content) - KEYS)
    if unknown:
        raise SettingError(f"{place}: {unknown[0]}", f"is unknown; there are {', '.join(sorted(KEYS))}")
    attributes = content.get("attributes")
    if not isinstance(attributes, dict):
        raise SettingError(f"{place}: attributes", "must hold the pipeline's settings")
    return Document(place, content["type"], attributes)


def _listed(type_names: Collection[str]) -> str:
    return " or ".join(type_names)
