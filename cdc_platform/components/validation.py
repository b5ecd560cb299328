"""Everything that is wrong with the files of pipelines, each with its line; nothing of them is opened."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from cdc_platform.components.documents import Document, judge_documents
from cdc_platform.components.loading import (
    COMPONENTS,
    DeclaredPipeline,
    name_in_use,
    require_pipelines,
    resolve_document,
)
from cdc_platform.components.mistakes import as_setting_errors, find_slips
from cdc_platform.components.strict_yaml import lines_of
from cdc_platform.errors import SettingError

_LINE: Final = re.compile(r" ?\(line (\d+)\)")


@dataclass(frozen=True)
class Finding:
    """One mistake: its file and line, the setting, and what to do.

    A mistake of the whole file is in line 1, one of a whole document in the first line of that.
    """

    file: Path
    line: int
    setting: str
    problem: str

    def describe(self) -> str:
        """Return it as compilers write it, so that editors find the place."""
        setting = f"`{self.setting}` " if self.setting else ""
        return f"{self.file}:{self.line}: {setting}{self.problem}"


@dataclass(frozen=True)
class Validation:
    """Pipelines whose settings can be used, and the mistakes of the others."""

    files: tuple[Path, ...]
    pipelines: tuple[str, ...]
    findings: tuple[Finding, ...]


def validate_pipelines(place: Path) -> Validation:
    """Judge all pipelines of a file or folder; reaches neither sources nor lakes.

    Raises:
        SettingError: a folder declares no pipeline.
    """
    files = require_pipelines(place)
    names: dict[str, str] = {}
    findings = [finding for file in files for finding in _judge_file(file, names)]
    return Validation(files, tuple(names), tuple(findings))


def _judge_file(file: Path, names: dict[str, str]) -> Iterator[Finding]:
    try:
        lines, documents = lines_of(file), list(judge_documents(file, COMPONENTS))
    except SettingError as error:
        yield _as_finding(file, error, {})
        return
    for lines_of_document, found in zip(lines, documents, strict=True):
        errors = [found] if isinstance(found, SettingError) else _judge_document(file, found, names)
        yield from (_as_finding(file, error, lines_of_document) for error in errors)


def _judge_document(file: Path, document: Document, names: dict[str, str]) -> list[SettingError]:
    """Return the mistakes of a document, and add its pipeline to those that have a name if there are none."""
    group = COMPONENTS[document.type_name].group()
    if slips := find_slips(document, group):
        return slips
    try:
        component = resolve_document(document)
        DeclaredPipeline(file, document.place, component).settings()
    except ValidationError as error:
        return as_setting_errors(document, error, group)
    except SettingError as error:
        return [error]
    if component.name in names:
        return [SettingError("name", name_in_use(component.name, names[component.name]))]
    names[component.name] = document.place
    return []


def _as_finding(file: Path, error: SettingError, lines: Mapping[str, int]) -> Finding:
    """Return an error with its line, which the error itself may name."""
    place, _, setting = error.setting.rpartition(": ")
    if not place and setting == str(file):
        setting = ""
    named = _LINE.search(error.setting) or _LINE.search(error.problem)
    line = int(named[1]) if named else _line_of(setting, lines)
    return Finding(file, line, _LINE.sub("", setting), _LINE.sub("", error.problem))


def _line_of(setting: str, lines: Mapping[str, int]) -> int:
    """Return the line of a setting, or of the innermost group around it that the file has."""
    while setting and setting not in lines:
        setting = setting.rpartition(".")[0]
    if setting:
        return lines[setting]
    return lines.get("attributes", lines.get("type", lines.get("", 1)))
