"""What is wrong with a pipeline's YAML, in words of the file: its keys, its variables, its values."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from cdc_platform.components.documents import Document
from cdc_platform.components.strict_yaml import Names
from cdc_platform.components.templates import texts_of
from cdc_platform.errors import SettingError

VARIABLE: Final = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")
UNKNOWN: Final = "extra_forbidden"
MISSING: Final = "missing"


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong: where, pydantic's kind of error, and what it says."""

    names: Names
    kind: str
    message: str


def check_variables(document: Document) -> None:
    """Refuse a text that would hold the word None, since one of its variables is not set.

    A value that is nothing but an unset variable is empty, which is fine where the setting may be left out.

    Raises:
        SettingError: there is such a text; its key and the variable are named.
    """
    for names, text in texts_of(document.attributes):
        unset = _unset_variables(text)
        if unset and VARIABLE.fullmatch(text.strip()) is None:
            raise SettingError(
                f"{document.place}: {'.'.join(names)}",
                f"needs the environment variable `{unset[0]}`, which is not set; set it, or write a default: "
                f"{{{{ env('{unset[0]}', 'VALUE') }}}}",
            )


def check_groups(document: Document, component: type[BaseModel]) -> None:
    """Refuse a plain value where a group of settings belongs.

    Raises:
        SettingError: there is one; its key is named.
    """
    for name, value in document.attributes.items():
        group = _group(component, name)
        if group is not None and not isinstance(value, Mapping):
            keys = ", ".join(group.model_fields)
            raise SettingError(f"{document.place}: {name}", f"must be a group of settings: {keys}")


def as_setting_error(document: Document, error: ValidationError, component: type[BaseModel]) -> SettingError:
    """Return pydantic's error as one of ours; a misspelled key comes first, since others follow from it."""
    outer = _find_group(component, error.title) or ()
    mistakes = sorted(_mistakes(error, outer), key=lambda mistake: mistake.kind != UNKNOWN)
    first = mistakes[0]
    guess = _guess(component, first.names) if first.kind == UNKNOWN else None
    others = [
        f"`{'.'.join(mistake.names)}` {_problem(document, mistake)}"
        for mistake in mistakes[1:]
        if mistake.kind in {UNKNOWN, MISSING}
    ]
    problem = _problem(document, first) + (f" Did you mean `{guess}`?" if guess is not None else "")
    if others:
        problem += f" Besides, {', and '.join(others)}"
    return SettingError(f"{document.place}: {'.'.join(first.names) or 'attributes'}", problem)


def _find_group(component: type[BaseModel], model_name: str) -> Names | None:
    """Return the keys of the group of settings that a model of this name describes."""
    for name, field in component.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                below = () if kind.__name__ == model_name else _find_group(kind, model_name)
                if below is not None:
                    return (name, *below)
    return None


def _mistakes(error: ValidationError, outer: Names) -> list[Mistake]:
    found = [
        (Mistake((*outer, *_setting_names(each["loc"])), each["type"], each["msg"]), each["input"])
        for each in error.errors()
    ]
    # A group of settings may also be a template: that it is no text says nothing.
    told = [
        mistake
        for mistake, value in found
        if mistake.kind != "string_type" or not isinstance(value, Mapping | list)
    ]
    return told or [found[0][0]]


def _setting_names(location: Sequence[str | int]) -> Names:
    """Return the parts of a location that are keys of the file; pydantic names the types it tried too."""
    parts = [str(part) for part in location]
    types = {"str", "int", "float", "bool"}
    return tuple(
        part for part in parts if part not in types and "[" not in part and not part.endswith("Model")
    )


def _problem(document: Document, mistake: Mistake) -> str:
    if mistake.kind == MISSING:
        return "is missing"
    if mistake.kind == UNKNOWN:
        return "is not known; is it misspelled?"
    unset = _unset_variables(str(_value_at(document.attributes, mistake.names)))
    if unset:
        return (
            f"is empty, since the environment variable `{unset[0]}` is not set; "
            "set it, or write the value into the file"
        )
    return f"is not right: {mistake.message}"


def _guess(component: type[BaseModel], names: Names) -> str | None:
    """Return the known key of the same group that is most like an unknown one."""
    *parents, wrong = names
    group: type[BaseModel] | None = component
    for parent in parents:
        group = _group(group, parent) if group is not None else None
    close = get_close_matches(wrong, list(group.model_fields), n=1) if group is not None else []
    return ".".join((*parents, close[0])) if close else None


def _group(component: type[BaseModel], name: str) -> type[BaseModel] | None:
    field = component.model_fields.get(name)
    kind = field.annotation if field is not None else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _value_at(value: Any, names: Names) -> Any:
    for name in names:
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
    return value


def _unset_variables(text: str) -> list[str]:
    return [name for name in VARIABLE.findall(text) if name not in os.environ]
