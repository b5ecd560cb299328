"""Settings that a frozen dataclass declares once: each field has its type, its default and its description.

They define the YAML of a pipeline, the schema for editors, and the JSON for Spark's workers.
A field without a description is not part of the YAML.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from cdc_platform.errors import SettingError
from cdc_platform.model.base.timestamps import from_rfc3339

Declared = TypeVar("Declared")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s/:,\[\]]+):[0-9]{1,5}")
_MAX_S: Final = 3_155_760_000
"""Maximum of a setting in seconds, 100 years: times that are further away may be outside the calendar."""
_HALF_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)")


@dataclass(frozen=True)
class Described:
    """The description of a setting, in the annotation of its field.

    Args:
        text: the description.
        is_path: whether paths are relative to the folder of the YAML file.
        choices: for a union of dataclasses, the name of each in the YAML, which must contain exactly one.
    """

    text: str
    is_path: bool = False
    choices: Mapping[str, type] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A field of a dataclass of settings.

    Args:
        name: name of the field.
        kind: its type, without None.
        default: its default; None for a default factory, MISSING for a required setting.
        takes_none: whether None is a valid value.
        description: its description; None if it is not part of the YAML.
    """

    name: str
    kind: Any
    default: Any
    takes_none: bool
    description: Described | None

    @property
    def choices(self) -> Mapping[str, type]:
        """The alternative dataclasses, by their names in the YAML."""
        return {} if self.description is None else self.description.choices

    @property
    def is_path(self) -> bool:
        """Whether paths are relative to the folder of the YAML file."""
        return self.description is not None and self.description.is_path


def _find_settings(kind: Any) -> Mapping[str, Setting]:
    hints = get_type_hints(kind, include_extras=True)
    settings_by_name = {}
    for member in fields(kind):
        hint, description = hints[member.name], None
        if get_origin(hint) is Annotated:
            hint, description = get_args(hint)
        kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        default = member.default if member.default_factory is MISSING else None
        inner = hint if len(kinds) != 2 or NoneType not in kinds else kinds[0]  # noqa: PLR2004  X | None
        settings_by_name[member.name] = Setting(member.name, inner, default, NoneType in kinds, description)
    return settings_by_name


settings_of: Final[Callable[[Any], Mapping[str, Setting]]] = cache(_find_settings)
"""The fields of a dataclass of settings by their names, in the order of their declaration."""


def read_settings(
    kind: type[Declared], entries: Mapping[str, Any], folder: Path | None = None, place: str = ""
) -> Declared:
    """Return a dataclass of settings from the values of YAML or JSON.

    Args:
        kind: the dataclass.
        entries: values by name; None means the default unless None is a valid value.
        folder: the base of relative paths; None leaves paths unchanged.
        place: prefix of names in errors.

    Raises:
        SettingError: a name is unknown or missing, or a value cannot be used.
    """
    names = settings_of(kind)
    for name in entries:
        if name not in names:
            raise SettingError(f"{place}{name}", f"is not known; there are: {', '.join(names)}")
    values = {name: value for name, value in entries.items() if value is not None or names[name].takes_none}
    for name, setting in names.items():
        if setting.default is MISSING and name not in values:
            raise SettingError(f"{place}{name}", "is missing")
    members = {name: _read(names[name], value, folder, f"{place}{name}") for name, value in values.items()}
    return kind(**members)


def read_json(kind: type[Declared], text: str) -> Declared:
    """Parse the settings of the JSON text of `to_json`."""
    return read_settings(kind, json.loads(text))


def to_json(settings: Any) -> str:
    """Return settings as one line of JSON, equal for equal settings; it includes secrets."""
    members = asdict(settings)
    for setting in settings_of(type(settings)).values():
        for name, kind in setting.choices.items():
            if isinstance(getattr(settings, setting.name), kind):
                members[setting.name] = {name: members[setting.name]}
    return json.dumps(members, sort_keys=True)


def check_members(settings: Any, place: str = "") -> None:
    """Reject values outside the enumerations of their fields.

    Args:
        settings: settings from Python code; the reader checks those from files.
        place: prefix of names in errors.

    Raises:
        SettingError: there is such a value.
    """
    for name, setting in settings_of(type(settings)).items():
        value = getattr(settings, name)
        item_kind = get_args(setting.kind)[-1] if get_origin(setting.kind) is Mapping else setting.kind
        if value is not None and is_enumeration(item_kind):
            values = value.items() if isinstance(value, Mapping) else [(None, value)]
            for key, item in values:
                read_member(item_kind, item, f"{place}{name}" if key is None else f"{place}{name}.{key}")


def check_filled(settings: Any, place: str = "", problem: str = "is missing or empty") -> None:
    """Reject blank texts of required settings.

    Raises:
        SettingError: there is one.
    """
    for name, setting in settings_of(type(settings)).items():
        if setting.default is MISSING and setting.kind is str and not getattr(settings, name).strip():
            raise SettingError(f"{place}{name}", problem)


def check_range(
    settings: Any,
    names: Iterable[str],
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    place: str = "",
) -> None:
    """Reject numbers outside a range, or not finite; None is a missing number.

    Raises:
        SettingError: there is one.
    """
    limits = {"above": above, "at least": at_least, "at most": at_most}
    range_text = " and ".join(
        f"{word} {limit:.15g}" for word, limit in limits.items() if math.isfinite(limit)
    )
    for name in names:
        value = getattr(settings, name)
        if value is None or (math.isfinite(value) and above < value and at_least <= value <= at_most):
            continue
        expectation = range_text if range_text and math.isfinite(value) else "a finite number"
        raise SettingError(f"{place}{name}", f"must be {expectation}, but is: {value}")


def check_host(setting: str, value: str | None, example: str) -> None:
    """Check that an address consists of a host and a port, without a scheme; None is a missing address.

    Raises:
        SettingError: the address has another form.
    """
    if value is not None and _HOST.fullmatch(value) is None:
        raise SettingError(setting, f"must look like {example}, without a scheme, but is: {value!r}")


def micros_of_setting(setting: str, value: str) -> int:
    """Return the microseconds of a time in RFC 3339.

    Raises:
        SettingError: the value is not such a time.
    """
    try:
        return from_rfc3339(value)
    except ValueError as error:
        raise SettingError(setting, f"must look like 2026-01-31T08:00:00Z, but is: {value!r}") from error


def is_enumeration(kind: object) -> bool:
    """Return whether values of a type are texts of a closed list."""
    return isinstance(kind, type) and issubclass(kind, StrEnum)


def is_group(kind: object) -> bool:
    """Return whether values of a type are groups of settings: it is a dataclass."""
    return isinstance(kind, type) and is_dataclass(kind)


def read_member(kind: type[StrEnum], value: object, place: str) -> StrEnum:
    """Return the member of an enumeration with a given text.

    Raises:
        SettingError: no member has this text.
    """
    choices = [member.value for member in kind]
    if value not in choices:
        raise SettingError(place, f"must be one of {', '.join(choices)}, but is: {value!r}")
    return kind(value)


def resolve_path(folder: Path, path: str, place: str) -> str:
    """Return a path of a YAML file, resolved against the file's folder.

    Raises:
        SettingError: the setting is empty, which would mean that folder itself; or it looks like a URI with
            one slash, which would mean a folder.
    """
    if not path.strip():
        raise SettingError(place, "is empty; write a folder, or `.` for the folder of this file")
    if (scheme := _HALF_SCHEME.match(path)) is not None:
        raise SettingError(place, f"must have two slashes after `{scheme[1]}:`, but is: {path}")
    return path if "://" in path else str((folder / Path(path).expanduser()).absolute())


def _read(setting: Setting, value: Any, folder: Path | None, place: str) -> Any:
    if setting.choices:
        return _read_choice(setting.choices, value, folder, place)
    if setting.is_path and folder is not None and value is not None:
        return resolve_path(folder, value, place)
    read = _read_value(setting.kind, value, folder, place)
    if setting.name.endswith("_s") and read is not None and read > _MAX_S:
        raise SettingError(place, f"must be at most {_MAX_S}, the seconds of 100 years, but is: {read}")
    return read


def _read_choice(choices: Mapping[str, type], value: Any, folder: Path | None, place: str) -> Any:
    groups = {name: entries for name, entries in value.items() if entries is not None}
    if len(groups) != 1 or not groups.keys() <= choices.keys():
        raise SettingError(place, f"must have exactly one of {', '.join(choices)}, but has: {list(groups)}")
    ((name, entries),) = groups.items()
    return read_settings(choices[name], entries, folder, f"{place}.{name}.")


def _read_value(kind: Any, value: Any, folder: Path | None, place: str) -> Any:
    container, inner = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if is_group(kind):
        return read_settings(kind, value, folder, f"{place}.")
    if is_enumeration(kind):
        return read_member(kind, value, place)
    if container is tuple:
        return tuple(
            _read_value(inner[0], item, folder, f"{place}.{number}") for number, item in enumerate(value)
        )
    if container is Mapping:
        return {name: _read_value(inner[1], item, folder, f"{place}.{name}") for name, item in value.items()}
    if kind is float and not math.isfinite(value):
        raise SettingError(place, f"must be a finite number, but is: {value}")
    return value
