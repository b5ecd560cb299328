"""Reading a pipeline's YAML file outside of a dg project: for the command line and definitions.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import dagster as dg
import yaml
from dagster.components.resolved.errors import ResolutionException
from pydantic import BaseModel, ValidationError

from cdc_platform.components.spanner import SpannerPipeline
from cdc_platform.errors import SettingError
from cdc_platform.pipeline.settings import PipelineSettings

TYPE: Final = f"{SpannerPipeline.__module__}.{SpannerPipeline.__name__}"
FILE_NAMES: Final = ("defs.yaml", "defs.yml")

SECTIONS: Final = {"Options": "table_options"}
"""Settings whose part of the file is not named like their model."""


def load_settings(path: Path) -> PipelineSettings:
    """Return the settings of a pipeline that a YAML file declares.

    Raises:
        SettingError: the file or one of its values cannot be used; both are named.
    """
    component = load_component(path)
    try:
        return component.to_settings(path.absolute().parent)
    except SettingError as error:
        raise SettingError(f"{path}: {error.setting}", error.problem) from error


def load_component(path: Path) -> SpannerPipeline:
    """Return the component that a YAML file declares, with its templates filled in.

    Raises:
        SettingError: the file or one of its values cannot be used; both are named.
    """
    attributes = _attributes(path)
    try:
        model = SpannerPipeline.model().model_validate(attributes)
        return _resolve(model)
    except ValidationError as error:
        raise _as_setting_error(path, error) from error
    except ResolutionException as error:
        # Dagster turns what is wrong with a nested value into text, and keeps the error itself as context.
        if isinstance(error.__context__, ValidationError):
            raise _as_setting_error(path, error.__context__) from error
        raise SettingError(str(path), f"cannot be filled in: {_last_line(error)}") from error


def _as_setting_error(path: Path, error: ValidationError) -> SettingError:
    first = error.errors()[0]
    section = SECTIONS.get(error.title, error.title.lower())
    nested = [] if error.title.startswith(SpannerPipeline.__name__) else [section]
    key = ".".join([*nested, *_setting_names(first["loc"])]) or "attributes"
    return SettingError(f"{path}: {key}", _problem(first["type"], first["msg"]))


def find_pipelines(place: Path) -> tuple[Path, ...]:
    """Return the pipelines' files at a place: itself if it is a file, else all defs.yaml below it, sorted."""
    if place.is_file():
        return (place,)
    found = (path for name in FILE_NAMES for path in place.rglob(name))
    return tuple(sorted(path for path in found if f"type: {TYPE}" in path.read_text(encoding="utf-8")))


def _attributes(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError(str(path), "is not a text in UTF-8") from error
    except yaml.YAMLError as error:
        raise SettingError(str(path), f"is not one YAML document: {error}") from error
    if not isinstance(document, dict) or document.get("type") != TYPE:
        raise SettingError(f"{path}: type", f"must be {TYPE}")
    attributes = document.get("attributes")
    if not isinstance(attributes, dict):
        raise SettingError(f"{path}: attributes", "must hold the pipeline's settings")
    return attributes


def _resolve(model: BaseModel) -> SpannerPipeline:
    component = SpannerPipeline.resolve_from_model(dg.ResolutionContext.default(), model)
    assert isinstance(component, SpannerPipeline)
    return component


def _setting_names(location: Sequence[str | int]) -> list[str]:
    """Return the parts of a location that are keys of the file; pydantic names the types it tried too."""
    parts = [str(part) for part in location]
    types = {"str", "int", "float", "bool"}
    return [part for part in parts if part not in types and "[" not in part and not part.endswith("Model")]


def _problem(kind: str, message: str) -> str:
    known = {"missing": "is missing", "extra_forbidden": "is not known; is it misspelled?"}
    return known.get(kind, f"is not right: {message}")


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
