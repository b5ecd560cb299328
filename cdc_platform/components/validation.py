"""Validation of pipelines' files: all mistakes with their lines, without opening a source or a lake."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from cdc_platform.components.documents import Document, judge_documents
from cdc_platform.components.loading import (
    COMPONENTS,
    DeclaredPipeline,
    check_name,
    require_pipelines,
    resolve_document,
)
from cdc_platform.components.mistakes import as_setting_errors, find_uncaught_mistakes
from cdc_platform.components.strict_yaml import lines_of
from cdc_platform.errors import SettingError

STAND_IN: Final = "value_of_a_missing_setting"
MAX_TRIES: Final = 3
"""First a wrong value is removed, then replaced, then removed together with the settings that it must fit."""
_NAMED: Final = re.compile(r"`([\w.]+)`")
_LAKE: Final = re.compile(r"lake\b")
_LINE: Final = re.compile(r" ?\(line (\d+)\)")


@dataclass(frozen=True)
class Finding:
    """One mistake: its file and line, the setting, and the problem with advice.

    A mistake of the whole file has line 1, one of a whole document the document's first line.
    """

    file: Path
    line: int
    setting: str
    problem: str

    def describe(self) -> str:
        """Return the mistake as compilers print one, `FILE:LINE: ...`, so that editors can open the place."""
        setting = f"`{self.setting}` " if self.setting else ""
        return f"{self.file}:{self.line}: {setting}{self.problem}"


@dataclass(frozen=True)
class Validation:
    """The files, the names of their pipelines, and their mistakes."""

    files: tuple[Path, ...]
    pipelines: tuple[str, ...]
    findings: tuple[Finding, ...]


def validate_pipelines(place: Path) -> Validation:
    """Validate all pipelines of a file or folder; opens neither sources nor lakes.

    Raises:
        SettingError: a folder declares no pipeline.
    """
    files = require_pipelines(place)
    by_name: dict[str, Document] = {}
    findings = [finding for file in files for finding in _judge_file(file, by_name)]
    return Validation(files, tuple(by_name), tuple(findings))


def _judge_file(file: Path, by_name: dict[str, Document]) -> Iterator[Finding]:
    try:
        lines, documents = lines_of(file), list(judge_documents(file, COMPONENTS))
    except SettingError as error:
        yield _as_finding(file, error, {})
        return
    for lines_of_document, document in zip(lines, documents, strict=True):
        errors = (
            [document] if isinstance(document, SettingError) else _judge_document(file, document, by_name)
        )
        yield from (_as_finding(file, error, lines_of_document) for error in errors)


def _judge_document(file: Path, document: Document, by_name: dict[str, Document]) -> list[SettingError]:
    """Return the mistakes of a document, and add its pipeline to the declared ones.

    Some mistakes hide others. So each mistake is repaired, and the document is validated again until
    no new mistake appears.
    """
    errors, candidate = _judge_once(file, document, by_name), document
    by_setting = {_setting_of(error): error for error in errors}
    tries: Counter[str] = Counter()
    while repairable := [error for error in errors if tries[_setting_of(error)] < MAX_TRIES]:
        names = [_setting_of(error) for error in repairable]
        tries.update(names)
        unfit = [setting for setting in names if tries[setting] == MAX_TRIES and setting in by_setting]
        partners = {name for setting in unfit for name in _partners(setting, by_setting[setting].problem)}
        fit = [setting for setting in names if setting not in unfit]
        candidate = _repair(candidate, fit, {*unfit, *partners}, has_no_lake=any(map(_LAKE.match, unfit)))
        errors = _judge_once(file, candidate, by_name)
        by_setting |= {_setting_of(error): error for error in errors if not _follows(error, by_setting)}
    return list(by_setting.values())


def _partners(setting: str, problem: str) -> Iterator[str]:
    """Yield the settings that a problem may name, each as a setting of the file and of the same group."""
    for name in _NAMED.findall(problem):
        yield from (name, f"{setting.rpartition('.')[0]}.{name}")


def _judge_once(file: Path, document: Document, by_name: dict[str, Document]) -> list[SettingError]:
    """Return the mistakes of one pass; a document without mistakes is declared, even if it was repaired."""
    group = COMPONENTS[document.type_name].group()
    if slips := find_uncaught_mistakes(document, group):
        return slips
    try:
        component = resolve_document(document)
        check_name(component.name, document.place, by_name)
        DeclaredPipeline(file, document, component).settings()
    except ValidationError as error:
        return as_setting_errors(document, error, group)
    except SettingError as error:
        return [error]
    if component.name != STAND_IN:
        by_name[component.name] = document
    return []


def _repair(
    document: Document, settings: Iterable[str], wrong_settings: Iterable[str], *, has_no_lake: bool
) -> Document:
    """Return a document without the wrong settings, and with a stand-in for each missing one.

    Others are removed if the document has them. A folder replaces a lake with settings that
    contradict each other.
    """
    attributes = deepcopy(dict(document.attributes))
    for setting in settings:
        _repair_setting(attributes, setting.split("."), STAND_IN)
    for setting in wrong_settings:
        _repair_setting(attributes, setting.split("."), None)
    if has_no_lake:
        attributes["lake"] = {"path": STAND_IN}
    return replace(document, attributes=attributes)


def _repair_setting(group: dict[str, Any], names: Sequence[str], absent_member: str | None) -> None:
    # Names of tables are keys, too, and may contain dots.
    ends = (end for end in range(len(names), 0, -1) if ".".join(names[:end]) in group)
    end = next(ends, len(names))
    name, inner = ".".join(names[:end]), names[end:]
    if name not in group:
        if absent_member is not None:
            group[name] = absent_member
    elif inner and isinstance(group[name], dict):
        _repair_setting(group[name], inner, absent_member)
    else:
        del group[name]


def _follows(error: SettingError, settings: Iterable[str]) -> bool:
    """Return whether a mistake may come from the repair of other settings: it is in one, or names one."""
    setting = f"{_setting_of(error)}."
    return STAND_IN in error.problem or any(
        setting.startswith(f"{other}.")
        or other.startswith(setting)
        or re.search(rf"[`.]{re.escape(other.rpartition('.')[2])}`", error.problem)
        for other in settings
    )


def _setting_of(error: SettingError) -> str:
    return _LINE.sub("", error.setting.rpartition(": ")[2])


def _as_finding(file: Path, error: SettingError, lines: Mapping[str, int]) -> Finding:
    """Return an error as a finding; the error itself may name its line."""
    place, _, setting = error.setting.rpartition(": ")
    if not place and setting == str(file):
        setting = ""
    line_match = _LINE.search(error.setting) or _LINE.search(error.problem)
    line = int(line_match[1]) if line_match else _line_of(setting, lines)
    return Finding(file, line, _LINE.sub("", setting), _LINE.sub("", error.problem))


def _line_of(setting: str, lines: Mapping[str, int]) -> int:
    """Return the line of a setting, or of the innermost group around it in the file."""
    while setting and setting not in lines:
        setting = setting.rpartition(".")[0]
    if setting:
        return lines[setting]
    return lines.get("attributes", lines.get("type", lines.get("", 1)))
