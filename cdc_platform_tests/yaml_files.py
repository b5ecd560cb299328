"""YAML files of pipelines for tests of what reads them."""

from pathlib import Path
from typing import Any, Final

import yaml

from cdc_platform.components.loading import COMPONENTS
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.spanner.spanner_settings import SpannerSettings

TYPE: Final = next(iter(COMPONENTS))
"""The type of a pipeline that reads a Spanner change stream."""


def bank_attributes(**changes: Any) -> dict[str, Any]:
    """Return the attributes of a small pipeline with an unreachable source."""
    source = {
        "project": "p",
        "instance": "i",
        "database": "d",
        "change_stream": "s",
        "emulator_host": "127.0.0.1:1",
    }
    return {"name": "bank", "source": source, "lake": {"path": "lake"}, "tables": ["accounts"], **changes}


def write_defs(folder: Path, attributes: dict[str, Any] | None = None, type_name: str = TYPE) -> Path:
    """Write a pipeline's file into a folder, and return it."""
    path = folder / "defs.yaml"
    document = {"type": type_name, "attributes": attributes if attributes is not None else bank_attributes()}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def write_two(folder: Path, second: dict[str, Any] | None = None) -> Path:
    """Write a file with the bank and a second pipeline, as `dg scaffold` leaves it when it appends one."""
    first = write_defs(folder).read_text(encoding="utf-8")
    path = write_defs(folder, second if second is not None else bank_attributes(name="shop"))
    path.write_text(f"{first}---\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    return path


def change_stream_of(settings: PipelineSettings) -> SpannerSettings:
    """Return a pipeline's settings for its change stream."""
    assert isinstance(settings.source, SpannerSettings)
    return settings.source
