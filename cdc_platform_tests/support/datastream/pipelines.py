"""Pipelines over folders of files, as Datastream writes them."""

import itertools
from pathlib import Path
from typing import Any, Final

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import TableOptions
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform_tests.support.datastream.files import MadeEvent

_serial: Final = itertools.count(1)


def make_pipeline(
    lake: LakeSettings, folder: Path, options: dict[str, TableOptions] | None = None, **source_fields: Any
) -> Pipeline:
    """Return a pipeline over a folder of files, with its own name."""
    source = DatastreamSettings(str(folder), table_name="{table}", **source_fields)
    settings = PipelineSettings(f"stream_{next(_serial)}", source, lake, table_options=options or {})
    return open_pipeline(settings)


def user(uuid: str, change: str, position: int, key: int, name: str = "") -> MadeEvent:
    """Return an event of the table `users`."""
    return MadeEvent(uuid, "users", change, position, {"id": key, "name": name or uuid})
