"""Reading a pipeline's YAML file outside of a dg project: for the command line and definitions.py."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import dagster as dg
from dagster.components.resolved.errors import ResolutionException
from pydantic import ValidationError

from cdc_platform.components.datastream import DatastreamPipeline
from cdc_platform.components.debezium import DebeziumPipeline
from cdc_platform.components.documents import FILE_NAMES, Document, read_documents
from cdc_platform.components.mistakes import as_setting_error, check_groups, check_variables
from cdc_platform.components.pipeline import PipelineComponent
from cdc_platform.components.spanner import SpannerPipeline
from cdc_platform.errors import SettingError
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings

COMPONENTS: Final[dict[str, type[PipelineComponent]]] = {
    f"{component.__module__}.{component.__name__}": component
    for component in (SpannerPipeline, DatastreamPipeline, DebeziumPipeline)
}
"""The kinds of pipelines, by the type that a document names."""
_ANY_TYPE: Final = "|".join(map(re.escape, COMPONENTS))
_DECLARED: Final = re.compile(
    rf"""^[^#\n]*\btype["']?\s*:\s*["']?(?:{_ANY_TYPE})(?![\w.])""",
    re.MULTILINE,
)


def load_settings(path: Path, name: str | None = None) -> PipelineSettings:
    """Return the settings of the pipeline that a YAML file declares; of several, the one of a name.

    Raises:
        SettingError: the file or one of its values cannot be used, and both are named; or the name does
            not choose one of the file's pipelines.
    """
    return _settings_of(path, _choose(path, _load(path), name))


def load_each(path: Path, name: str | None = None) -> tuple[PipelineSettings, ...]:
    """Return the settings of each pipeline that a YAML file declares, in its order; or of the one of a name.

    Raises:
        SettingError: the file or one of its values cannot be used, and both are named; or none of its
            pipelines has the name.
    """
    components = _load(path)
    chosen = components.values() if name is None else (_choose(path, components, name),)
    return tuple(_settings_of(path, placed) for placed in chosen)


def load_definitions(path: Path, but: Collection[str] = ()) -> dict[str, dg.Definitions]:
    """Return the definitions of each pipeline that a YAML file declares, by its name.

    Args:
        path: the file.
        but: pipelines that are left out, since others have their names.

    Raises:
        SettingError: the file or one of its values cannot be used; both are named.
    """
    for document in read_documents(path, COMPONENTS):
        if document.is_post_processed:
            problem = "would be ignored: only Dagster's own loading of a project applies it; remove it"
            raise SettingError(f"{document.place}: post_processing", problem)
    definitions = {}
    for name, (place, component) in _load(path).items():
        if name not in but:
            with _naming(place):
                definitions[name] = component.definitions(path.absolute().parent)
    return definitions


def find_pipelines(place: Path) -> tuple[Path, ...]:
    """Return the pipelines' files at a place: itself if it is a file, else each of FILE_NAMES below it."""
    if place.is_file():
        return (place,)
    paths = (path for name in FILE_NAMES for path in place.rglob(name))
    return tuple(sorted(path for path in paths if path.is_file() and _declares(path)))


def _declares(path: Path) -> bool:
    """Return whether a text looks like a pipeline's; loading says what is wrong with its YAML."""
    try:
        return _DECLARED.search(path.read_text(encoding="utf-8", errors="replace")) is not None
    except OSError as error:
        raise SettingError(str(path), f"cannot be read: {error.strerror}") from error


Placed = tuple[str, PipelineComponent]
"""A component, and what names its document in messages."""


def _load(path: Path) -> dict[str, Placed]:
    """Return the components of a file by name, with their templates filled in."""
    components: dict[str, Placed] = {}
    for document in read_documents(path, COMPONENTS):
        component = _load_document(document)
        if component.name in components:
            raise SettingError(f"{document.place}: name", f"is that of another document: {component.name}")
        components[component.name] = (document.place, component)
    return components


def _settings_of(path: Path, placed: Placed) -> PipelineSettings:
    place, component = placed
    with _naming(place):
        return component.to_settings(path.absolute().parent)


def _choose(path: Path, components: dict[str, Placed], name: str | None) -> Placed:
    names = ", ".join(f"`{component_name}`" for component_name in components)
    if name is None and len(components) > 1:
        raise SettingError(str(path), f"declares several pipelines; choose one with `--name`: {names}")
    if name is not None and name not in components:
        raise SettingError(str(path), f"declares no pipeline `{name}`, but {names}")
    return components[name] if name is not None else next(iter(components.values()))


def _load_document(document: Document) -> PipelineComponent:
    kind = COMPONENTS[document.type_name]
    group = kind.group()
    check_groups(document, group)
    check_variables(document)
    try:
        model = kind.model().model_validate(document.attributes)
        with _naming(document.place):
            component = kind.resolve_from_model(dg.ResolutionContext.default(), model)
    except ValidationError as error:
        raise as_setting_error(document, error, group) from error
    except ResolutionException as error:
        # Dagster turns what is wrong with a nested value into text, and keeps the error itself as context.
        if isinstance(error.__context__, ValidationError):
            raise as_setting_error(document, error.__context__, group) from error
        raise SettingError(document.place, f"cannot be filled in: {_last_line(error)}") from error
    return component


@contextmanager
def _naming(place: str) -> Iterator[None]:
    try:
        yield
    except SettingError as error:
        raise SettingError(f"{place}: {error.setting}", error.problem) from error


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
