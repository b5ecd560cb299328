"""The YAML documents of a file that declare pipelines."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cdc_platform.errors import SettingError

KEYS: Final = frozenset({"type", "attributes", "template_vars_module", "requirements", "post_processing"})
"""What a component's document may hold, by Dagster."""
MERGE: Final = "tag:yaml.org,2002:merge"


class RepeatedKey(yaml.YAMLError):
    """A key stands twice in one mapping; the text is its name, with its line."""


class _StrictLoader(yaml.SafeLoader):
    """Loads what is safe, and no key twice: YAML would let the last one win without a word."""

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
