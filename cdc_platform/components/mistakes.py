"""Mistakes in a pipeline's YAML, reported by the file's own keys, variables and values."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from cdc_platform.components.documents import Document, texts_of
from cdc_platform.components.strict_yaml import Names
from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.lake_settings import holds_secret
from cdc_platform.visible import shorten

VARIABLE: Final = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")
UNKNOWN: Final = "extra_forbidden"
MISSING: Final = "missing"
_EXPECTED: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), ("a list", "[accounts, transfers]")),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"),
        ("a group of settings", "{name: value}"),
    ),
    "string_type": ("a text", "accounts"),
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_parsing_size", "int_from_float"), ("a whole number", "10")
    ),
    **dict.fromkeys(("float_type", "float_parsing"), ("a number", "0.5")),
    "finite_number": ("a finite number", "10"),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("true or false", "true")),
}
"""The expected value for each of pydantic's kinds of errors, with an example."""
_CHOICE: Final = "literal_error"
MAX_CHARACTERS: Final = 80
"""Maximum number of characters of a wrong value that a message shows."""


@dataclass(frozen=True)
class Mistake:
    """One mistake: its keys, pydantic's kind of error, the facts of the error, and the value."""

    names: Names
    kind: str
    facts: Mapping[str, Any]
    value: object

    @classmethod
    def of(cls, error: ErrorDetails, outer: Names) -> "Mistake":
        """Return one of pydantic's errors; ``outer`` are the keys that lead to its model."""
        names = (*outer, *_setting_names(error["loc"]))
        return cls(names, error["type"], error.get("ctx", {}), error["input"])


def find_uncaught_mistakes(document: Document, component: type[BaseModel]) -> list[SettingError]:
    """Return the mistakes of a document that pydantic would miss, or describe in its own words."""
    return [*_find_plain_groups(document, component), *_find_unset(document)]


def _find_unset(document: Document) -> Iterator[SettingError]:
    """Yield an error for each text that would contain the word None because one of its variables is not set.

    A value that consists of an unset variable is empty, which is fine if the setting is optional.
    """
    for names, text in texts_of(document.attributes):
        unset = _unset_variables(text)
        if unset and VARIABLE.fullmatch(text.strip()) is None:
            yield SettingError(
                f"{document.place}: {'.'.join(names)}",
                f"needs the environment variable `{unset[0]}`, which is not set; set it, or write a default: "
                f"{{{{ env('{unset[0]}', 'VALUE') }}}}",
            )


def _find_plain_groups(document: Document, component: type[BaseModel]) -> Iterator[SettingError]:
    """Yield an error for each plain value in place of a group of settings."""
    for name, value in document.attributes.items():
        if isinstance(value, Mapping):
            continue
        group = _group(component, name)
        keys = "" if group is None else ": " + ", ".join(group.model_fields)
        if group is not None or _is_map(component, name):
            yield SettingError(f"{document.place}: {name}", f"must be a group of settings{keys}")


def as_setting_errors(
    document: Document, error: ValidationError, component: type[BaseModel]
) -> list[SettingError]:
    """Return a setting error for each setting that pydantic rejects."""
    return [_as_error(document, mistake, component) for mistake in _mistakes(error, component)]


def _as_error(document: Document, mistake: Mistake, component: type[BaseModel]) -> SettingError:
    place = f"{document.place}: {'.'.join(mistake.names) or 'attributes'}"
    return SettingError(place, _problem(document, mistake, component))


def as_setting_error(document: Document, error: ValidationError, component: type[BaseModel]) -> SettingError:
    """Return pydantic's error as a setting error; a misspelled key comes first, because it causes others."""
    mistakes = sorted(_mistakes(error, component), key=lambda mistake: mistake.kind != UNKNOWN)
    further = [
        f"`{'.'.join(mistake.names)}` {_problem(document, mistake, component)}"
        for mistake in mistakes[1:]
        if mistake.kind in {UNKNOWN, MISSING}
    ]
    first = _as_error(document, mistakes[0], component)
    sentences = [text if text.endswith("?") else f"{text}." for text in (first.problem, *further)]
    return SettingError(first.setting, " ".join(sentences) if further else first.problem)


def _find_group(component: type[BaseModel], model_name: str) -> Names | None:
    """Return the keys that lead to the group of settings with a model of this name."""
    for name, field in component.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                below = () if kind.__name__ == model_name else _find_group(kind, model_name)
                if below is not None:
                    return (name, *below)
    return None


def _mistakes(error: ValidationError, component: type[BaseModel]) -> list[Mistake]:
    """Return the mistakes, one for each setting: a value that matches none of several types is one."""
    outer = _find_group(component, error.title) or ()
    mistakes = [Mistake.of(each, outer) for each in error.errors()]
    by_setting: dict[Names, Mistake] = {}
    for mistake in mistakes:
        # Any setting may also be a template, so pydantic also reports that a wrong value is not text.
        if mistake.kind != "string_type" or not _is_explained(mistake, mistakes):
            by_setting.setdefault(mistake.names, mistake)
    return [*by_setting.values()]


def _is_explained(mistake: Mistake, mistakes: Sequence[Mistake]) -> bool:
    """Return whether there is another mistake in the same setting, or of another kind for its value."""
    within = [other for other in mistakes if other.names[: len(mistake.names)] == mistake.names]
    return any(other.kind != mistake.kind or len(other.names) > len(mistake.names) for other in within)


def _setting_names(location: Sequence[str | int]) -> Names:
    """Return the parts of a location that are keys of the file, without the types that pydantic tried."""
    parts = [str(part) for part in location]
    types = {"str", "int", "float", "bool"}
    return tuple(
        part for part in parts if part not in types and "[" not in part and not part.endswith("Model")
    )


def _problem(document: Document, mistake: Mistake, component: type[BaseModel]) -> str:
    if mistake.kind == MISSING:
        return "is missing"
    if mistake.kind == UNKNOWN:
        guess = _guess(component, mistake.names)
        return "is not known; is it misspelled?" + (f" Did you mean `{guess}`?" if guess is not None else "")
    value_text = str(_value_at(document.attributes, mistake.names))
    unset = _unset_variables(value_text)
    if unset:
        return (
            f"is empty, because the environment variable `{unset[0]}` is not set; "
            "set it, or write the value into the file"
        )
    variables = VARIABLE.findall(value_text)
    if holds_secret(".".join(mistake.names), _value_text(mistake.value)):
        actual = "the present value"
    else:
        # A value from the environment may be a secret, too.
        actual = f"the value of `{variables[0]}`" if variables else _excerpt(mistake.value)
    return f"must be {_expectation(mistake, component)}, and not {actual}"


def _expectation(mistake: Mistake, component: type[BaseModel]) -> str:
    if mistake.kind == _CHOICE:
        return f"one of {mistake.facts['expected']}"
    kind, example = _EXPECTED.get(mistake.kind, ("of another type", ""))
    default = _default(component, mistake.names)
    if isinstance(default, str | int | float) and default != "":
        example = _excerpt(default)
    return f"{kind}, such as {example}" if example else kind


def _default(component: type[BaseModel], names: Names) -> object:
    """Return the default of a setting, None if it has none."""
    group = _group_of(component, names)
    field = group.model_fields.get(names[-1]) if group is not None and names else None
    default = field.get_default(call_default_factory=True, validated_data={}) if field is not None else None
    return None if default is PydanticUndefined else default


def _excerpt(value: object) -> str:
    if isinstance(value, Mapping | list):
        return "a list" if isinstance(value, list) else "a group of settings"
    return shorten(_value_text(value), MAX_CHARACTERS)


def _value_text(value: object) -> str:
    try:
        return json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:
        return "a number of too many digits"  # Python refuses to write it; also for a value that nests itself


def _guess(component: type[BaseModel], names: Names) -> str | None:
    """Return the known key of the same group that is most similar to an unknown one."""
    *parents, wrong = names
    group = _group_of(component, names)
    close = get_close_matches(wrong, list(group.model_fields), n=1) if group is not None else []
    return ".".join((*parents, close[0])) if close else None


def _group_of(component: type[BaseModel], names: Names) -> type[BaseModel] | None:
    """Return the group that a setting is in."""
    group: type[BaseModel] | None = component
    for name in names[:-1]:
        group = _group(group, name) if group is not None else None
    return group


def _group(component: type[BaseModel], name: str) -> type[BaseModel] | None:
    field = component.model_fields.get(name)
    kind = field.annotation if field is not None else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _is_map(component: type[BaseModel], name: str) -> bool:
    field = component.model_fields.get(name)
    return field is not None and get_origin(field.annotation) is dict


def _value_at(value: Any, names: Names) -> Any:
    for name in names:
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
    return value


def _unset_variables(text: str) -> list[str]:
    return [name for name in VARIABLE.findall(text) if name not in os.environ]
