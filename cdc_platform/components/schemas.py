"""Groups of a pipeline's YAML, generated from the dataclasses that declare its settings.

A string stays a string after its template is filled in: Dagster would turn a password of digits into a
number, and the version 1.10 into 1.1.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from functools import cache, partial
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import dagster as dg
from pydantic import BeforeValidator, Field, create_model
from pydantic_core import PydanticKnownError

from cdc_platform.model.base.declared_settings import Setting, is_enumeration, is_group, settings_of

_MARK: Final = "\0"
"""Nothing that begins with it looks like a literal of Python, of which Dagster would make a value."""


class Group(dg.Model, dg.Resolvable):
    """A group of settings of a YAML file, with its templates filled in."""

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: Any) -> Any:
        """Return the group; a text in its place stays a text, so that validation names the setting."""
        return model if isinstance(model, str) else super().resolve_from_model(context, model)


@cache
def group_of(kind: type, name: str) -> type[Group]:
    """Return the group of settings that a dataclass declares; the fields without a description are left out.

    Args:
        kind: the dataclass.
        name: what editors and errors call the group; a component has no other one of this name.
    """
    return make_group(name, fields_of(kind))


def make_group(name: str, declarations: Mapping[str, tuple[Any, Any]]) -> type[Group]:
    """Return the group of settings with the fields of `fields_of`."""
    members: dict[str, Any] = dict(declarations)
    return create_model(name, __base__=Group, **members)


def fields_of(kind: type, kinds: Mapping[str, type] | None = None) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each setting of a dataclass, for a pydantic model.

    Args:
        kind: the dataclass.
        kinds: dataclasses for fields whose declared type is a protocol.
    """
    fields = {}
    for name, setting in settings_of(kind).items():
        if setting.description is not None:
            field_kind = (kinds or {}).get(name, setting.kind)
            fields[name] = (
                _annotate(setting, field_kind, setting.description.text),
                _default(setting, field_kind),
            )
    return fields


def _annotate(setting: Setting, kind: Any, text: str) -> Any:
    title = _title(setting)
    if setting.choices:
        members = {
            name: (
                Annotated[group_of(choice, name.title()) | None, _says(inspect.getdoc(choice) or "")],
                None,
            )
            for name, choice in setting.choices.items()
        }
        return Annotated[make_group(title, members), _says(text)]
    takes_none = setting.takes_none or get_origin(kind) is tuple
    plain = _plain(kind, title)
    return Annotated[plain | None if takes_none else plain, _resolver(kind, text)]


def _default(setting: Setting, kind: Any) -> Any:
    """Return the default or a factory for it; a list with an empty default, or none, may be left empty."""
    if setting.default is MISSING:
        return ...
    if get_origin(kind) is tuple and not setting.takes_none:
        return Field(default_factory=lambda: list(setting.default))
    if is_enumeration(kind) and setting.default is not None:
        return str(setting.default)
    if setting.default is not None or setting.takes_none:
        return setting.default
    return Field(default_factory=dict if get_origin(kind) is Mapping else group_of(kind, _title(setting)))


def _title(setting: Setting) -> str:
    return setting.name.title().replace("_", "")


def _plain(kind: Any, title: str) -> Any:
    """Return the type of a setting in the YAML; the reader rejects wrong templates and values."""
    container, inner = get_origin(kind), get_args(kind)
    if container is tuple:
        return list[_plain(inner[0], title)]  # type: ignore[misc]  # a type that is made here
    if container is Mapping:
        return dict[str, _plain(inner[1], title)]  # type: ignore[misc]  # the same
    if is_enumeration(kind):
        return Union[Literal[tuple(member.value for member in kind)], str]  # noqa: UP007  made here
    if kind in (int, float):
        error: Literal["int_type", "float_type"] = "int_type" if kind is int else "float_type"
        return Annotated[kind, BeforeValidator(partial(_refuse_boolean, error=error))]
    return group_of(kind, title) if is_group(kind) else kind


def _refuse_boolean(value: object, error: Literal["int_type", "float_type"]) -> object:
    """Return the value of a number; YAML reads `yes`, `no`, `on` and `off` as booleans, which are 1 and 0."""
    if isinstance(value, bool):
        raise PydanticKnownError(error)
    return value


def _says(text: str) -> dg.Resolver:
    """Describe a setting; pydantic's own description does not reach the schema for editors."""
    resolver: dg.Resolver = dg.Resolver.default(description=text)
    return resolver


def _resolver(kind: Any, text: str) -> dg.Resolver:
    """Describe a setting, and keep its strings as strings."""
    leaf, is_container = kind, False
    while get_origin(leaf) in (tuple, Mapping):
        leaf, is_container = get_args(leaf)[0 if get_origin(leaf) is tuple else 1], True
    if leaf is not str and not is_enumeration(leaf):
        return _says(text)
    resolve = _resolve_container if is_container else _resolve_text
    resolver: dg.Resolver = dg.Resolver(resolve, description=text, inject_before_resolve=False)
    return resolver


def _resolve_container(context: dg.ResolutionContext, value: Any) -> Any:
    if isinstance(value, str):
        return context.resolve_value(value)  # a template of the whole list or group
    return _resolve_texts(context, value)


def _resolve_texts(context: dg.ResolutionContext, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _resolve_texts(context.at_path(name), item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_resolve_texts(context.at_path(place), item) for place, item in enumerate(value)]
    return _resolve_text(context, value)


def _resolve_text(context: dg.ResolutionContext, text: str | None) -> str | None:
    """Return a text with its template filled in; None if it consists of an unset variable."""
    if text is None or context.resolve_value(text) is None:
        return None
    return str(context.resolve_value(_MARK + text)).removeprefix(_MARK)
