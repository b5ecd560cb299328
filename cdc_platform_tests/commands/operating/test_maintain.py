"""`cdc-platform maintain`: what killed runs have left is gone, and nothing else."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_platform.commands import pipelines
from cdc_platform.components.loading import load_settings
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.yaml_files import write_defs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_S = 24 * 3600


@pytest.mark.integration
def test_files_of_killed_runs_are_deleted(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that no metadata names goes once it is older than three days; a younger one stays."""
    monkeypatch.setattr(pipelines, "start_spark", lambda _settings: spark)
    source, lake = {"path": str(tmp_path)}, {"path": session_lake.path}
    attributes = {"name": "maintained", "source": source, "lake": lake}
    defs = write_defs(tmp_path, attributes, "cdc_platform.components.datastream.DatastreamPipeline")
    table = open_pipeline(load_settings(defs)).lake.system_table(LOG)
    folder = Path(table.location().removeprefix("file://")) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for days in (2, 4):
        left = folder / f"{days}.parquet"
        left.touch()
        moment = time.time() - days * DAY_S
        os.utime(left, (moment, moment))
    code, output, errors = run("maintain", defs)
    assert (code, output) == (0, "files rewritten 0  files deleted 1\n"), errors
    assert [file.name for file in folder.iterdir()] == ["2.parquet"]
