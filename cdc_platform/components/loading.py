"""Loading of pipelines' YAML files outside a dg project, for the command line and definitions.py."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dagster as dg
from dagster.components.resolved.errors import ResolutionException
from pydantic import ValidationError

from cdc_platform.components.datastream import DatastreamPipeline
from cdc_platform.components.debezium import DebeziumPipeline
from cdc_platform.components.documents import Document, read_documents
from cdc_platform.components.mistakes import as_setting_error, find_uncaught_mistakes
from cdc_platform.components.pipeline import PipelineComponent
from cdc_platform.components.places import FILE_NAMES
from cdc_platform.components.spanner import SpannerPipeline
from cdc_platform.errors import SettingError
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings

COMPONENTS: Final[dict[str, type[PipelineComponent]]] = {
    f"{component.__module__}.{component.__name__}": component
    for component in (SpannerPipeline, DatastreamPipeline, DebeziumPipeline)
}
"""The kinds of pipelines, by the type that a document names."""
_DECLARED: Final = re.compile(
    rf"""^[^#\n]*\btype["']?\s*:\s*["']?{re.escape(PipelineComponent.__module__.rpartition(".")[0])}\.""",
    re.MULTILINE,
)
"""Any type name of this package; loading reports a misspelled one."""


@dataclass(frozen=True)
class DeclaredPipeline:
    """A pipeline's component, and the document and file that declare it; paths are relative to the file."""

    file: Path
    document: Document
    component: PipelineComponent

    def settings(self) -> PipelineSettings:
        """Return the settings of the pipeline.

        Raises:
            SettingError: a value cannot be used; the error names it and the document.
        """
        with _naming(self.document.place):
            return self.component.to_settings(self.file.absolute().parent)

    def definitions(self) -> dg.Definitions:
        """Return its definitions for Dagster.

        Raises:
            SettingError: a value cannot be used; the error names it and the document.
        """
        with _naming(self.document.place):
            return self.component.definitions(self.file.absolute().parent)


def load_settings(place: Path, name: str | None = None) -> PipelineSettings:
    """Return the settings of the pipeline of a file or folder; a name chooses one of several.

    Raises:
        SettingError: a file or one of its values cannot be used; the error names both. Or the name does not
            choose one of the pipelines.
    """
    return _choose(place, load_declared([place]), name).settings()


def load_each(place: Path, name: str | None = None) -> tuple[PipelineSettings, ...]:
    """Return the settings of each pipeline of a YAML file or a folder, in order; a name chooses one.

    Raises:
        SettingError: a file or one of its values cannot be used; the error names both. Or no pipeline has
            the name.
    """
    pipelines = load_declared([place])
    choice = pipelines.values() if name is None else (_choose(place, pipelines, name),)
    return tuple(pipeline.settings() for pipeline in choice)


def load_declared(places: Iterable[Path]) -> dict[str, DeclaredPipeline]:
    """Return the pipelines of files and folders by name, with their templates filled in.

    Raises:
        SettingError: a file or one of its values cannot be used, or a folder declares no pipeline, or two
            pipelines have one name.
    """
    files: dict[Path, Path] = {}
    for place in places:
        for file in require_pipelines(place):
            files.setdefault(file.resolve(), file)
    pipelines: dict[str, DeclaredPipeline] = {}
    for file in files.values():
        for document in read_documents(file, COMPONENTS):
            component = _load_document(document)
            check_name(component.name, document.place, {name: by.document for name, by in pipelines.items()})
            pipelines[component.name] = DeclaredPipeline(file, document, component)
    return pipelines


def check_name(name: str, place: str, documents: Mapping[str, Document]) -> None:
    """Check that no other pipeline has a name.

    Raises:
        SettingError: another document declares a pipeline of this name.
    """
    if name in documents:
        problem = f"is already used by {documents[name].place}; choose another: {name}"
        raise SettingError(f"{place}: name", problem)


def find_pipelines(place: Path) -> tuple[Path, ...]:
    """Return the pipelines' files at a place: the place if it is a file, else each of FILE_NAMES below it.

    A file with several links is returned once, by the first path. Folders whose names begin with `..` are
    skipped: a mounted ConfigMap keeps its files there, behind links.
    """
    if place.is_file():
        return (place,)
    paths = (path for name in FILE_NAMES for path in place.rglob(name))
    distinct: dict[Path, Path] = {}
    for path in sorted(paths):
        is_behind = any(part.startswith("..") for part in path.relative_to(place).parts)
        if not is_behind and path.is_file() and _declares(path):
            distinct.setdefault(path.resolve(), path)
    return tuple(distinct.values())


def _declares(path: Path) -> bool:
    """Return whether a file looks like a pipeline's; loading reports errors in its YAML."""
    try:
        return _DECLARED.search(path.read_text(encoding="utf-8", errors="replace")) is not None
    except OSError as error:
        raise SettingError(str(path), f"cannot be read: {error.strerror}") from error


def require_pipelines(place: Path) -> tuple[Path, ...]:
    """Return the pipelines' files at a place.

    Raises:
        SettingError: a folder has none.
    """
    files = find_pipelines(place) if place.is_dir() else (place,)
    if not files:
        problem = f"contains no file named {' or '.join(FILE_NAMES)} that declares a pipeline"
        raise SettingError(str(place), problem)
    return files


def _choose(place: Path, pipelines: dict[str, DeclaredPipeline], name: str | None) -> DeclaredPipeline:
    names = ", ".join(f"`{declared_name}`" for declared_name in pipelines)
    if name is None and len(pipelines) > 1:
        raise SettingError(str(place), f"declares several pipelines; choose one with `--name`: {names}")
    if name is not None and name not in pipelines:
        raise SettingError(str(place), f"declares no pipeline `{name}`, but {names}")
    return pipelines[name] if name is not None else next(iter(pipelines.values()))


def _load_document(document: Document) -> PipelineComponent:
    group = COMPONENTS[document.type_name].group()
    for slip in find_uncaught_mistakes(document, group):
        raise slip
    try:
        return resolve_document(document)
    except ValidationError as error:
        raise as_setting_error(document, error, group) from None


def resolve_document(document: Document) -> PipelineComponent:
    """Return the component that a document declares, with its templates filled in.

    Raises:
        ValidationError: values are missing, unknown or of another type.
        SettingError: a value cannot be used; the error names it and the document.
    """
    kind = COMPONENTS[document.type_name]
    try:
        model = kind.model().model_validate(document.attributes)
        with _naming(document.place):
            return kind.resolve_from_model(dg.ResolutionContext.default(), model)
    except ResolutionException as error:
        # Dagster turns the error of a nested value into text, and keeps the error itself as context.
        if isinstance(error.__context__, ValidationError):
            raise error.__context__ from error
        raise SettingError(document.place, f"cannot be filled in: {_last_line(error)}") from None


@contextmanager
def _naming(place: str) -> Iterator[None]:
    try:
        yield
    except SettingError as error:
        raise SettingError(f"{place}: {error.setting}", error.problem) from None


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
