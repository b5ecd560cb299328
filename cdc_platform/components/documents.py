"""YAML documents that declare pipelines, and the templates that they may contain."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import dagster as dg

from cdc_platform.components.places import FILE_NAMES
from cdc_platform.components.strict_yaml import MAX_INTEGER, Names, parse
from cdc_platform.errors import SettingError
from cdc_platform.visible import shorten

KEYS: Final = frozenset({"type", "attributes", "requirements", "post_processing"})
"""Allowed members of a component's document: not `template_vars_module`, which names code to run."""
_FORMER_NAME: Final = "component.yaml"
"""Former name of the file, which Dagster still reads."""


@dataclass(frozen=True)
class Document:
    """One declared pipeline.

    ``place`` names its file in messages, and the number of the document if the file has several.
    """

    place: str
    type_name: str
    attributes: Mapping[str, Any]
    is_post_processed: bool = False


def read_documents(path: Path, type_names: Collection[str]) -> tuple[Document, ...]:
    """Return the documents of a file, separated by `---`; each must declare a component of a given type.

    Raises:
        SettingError: the file cannot be read, or one of its documents declares another type or contains a
            template that is more than an environment variable.
    """
    documents = []
    for document in judge_documents(path, type_names):
        if isinstance(document, SettingError):
            raise document
        documents.append(document)
    return tuple(documents)


def judge_documents(path: Path, type_names: Collection[str]) -> Iterator[Document | SettingError]:
    """Yield each document of a file, or the error in it.

    Raises:
        SettingError: the file cannot be read, or is empty.
    """
    contents = [content for content in parse(path) if content is not None]
    if not contents:
        raise SettingError(f"{path}: type", f"must be {_alternatives(type_names)}, but the file is empty")
    for number, content in enumerate(contents):
        try:
            yield _as_document(_place_of(path, number, contents), content, type_names)
        except SettingError as error:
            yield error


@dg.template_var
def has_safe_document(context: dg.ComponentLoadContext) -> bool:
    """Check the document of a component before Dagster evaluates any part of it.

    Dagster asks a component class for its template variables before it imports the document's
    `template_vars_module` and fills in its templates, including those of `post_processing`.

    Raises:
        SettingError: the document contains a template that is more than an environment variable, or an
            unknown key.
    """
    folder, number = context.component_path.file_path, context.component_path.instance_key
    file = next(file for name in (*FILE_NAMES, _FORMER_NAME) if (file := folder / name).exists())
    contents = parse(file)
    assert isinstance(number, int)  # Dagster counts the documents of a file, a single one too
    _check_parts(_place_of(file, number, contents), contents[number])
    return True


def _place_of(path: Path, number: int, contents: Sequence[object]) -> str:
    return f"{path} (document {number + 1})" if len(contents) > 1 else str(path)


def _as_document(place: str, content: object, type_names: Collection[str]) -> Document:
    type_name = content.get("type") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(type_name, str) or type_name not in type_names:
        close = get_close_matches(str(type_name), type_names, n=1)
        guess = f" Did you mean `{close[0]}`?" if close else ""
        kind = "it is missing" if type_name is None else f"not {shorten(str(type_name), 100)}"
        raise SettingError(f"{place}: type", f"must be {_alternatives(type_names)}, and {kind}.{guess}")
    _check_parts(place, content)
    attributes = content.get("attributes")
    if not isinstance(attributes, dict):
        raise SettingError(f"{place}: attributes", "must be a group with the pipeline's settings")
    return Document(place, type_name, attributes, bool(content.get("post_processing")))


def _check_parts(place: str, content: Mapping[str, Any]) -> None:
    for name, part in content.items():
        if name == "template_vars_module":
            problem = "names code to run, which no pipeline needs; use {{ env.X }} for values that differ"
            raise SettingError(f"{place}: {name}", problem)
        if name not in KEYS:
            raise SettingError(f"{place}: {name}", f"is unknown; there are {', '.join(sorted(KEYS))}")
        try:
            check_templates(part, () if name == "attributes" else (name,))
        except SettingError as error:
            raise SettingError(f"{place}: {error.setting}", error.problem) from None


def _alternatives(type_names: Collection[str]) -> str:
    return " or ".join(type_names)


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
