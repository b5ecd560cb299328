"""A disk that fills up ends a command with one line, and loses nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from cdc_platform.components.loading import load_settings
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform_tests.spark_fixtures import TEST_SPARK
from cdc_platform_tests.support.cycles import failed_checks, sync
from cdc_platform_tests.support.sessions import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "datastream"
PROGRAM: Final = str(Path(sys.executable).with_name("cdc-platform"))
SMALL_DISK: Final = (
    'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && "$@"; code=$?; cp -r "$0/." "$OUT"; exit $code'
)
"""Runs a command in a namespace of its own, in which a folder is a small disk, and keeps what is on it."""


@pytest.mark.integration
@pytest.mark.parametrize("local_merge_bytes", [67_108_864, 0])
def test_a_full_disk_is_an_error_of_one_line(
    spark: "SparkSession", tmp_path: Path, local_merge_bytes: int
) -> None:
    """One line says what to do, whether this process or Spark writes; with room the next start continues."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("No small disk can be mounted here: this user may have no namespace of its own")
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    defs, disk, folder = tmp_path / "defs.yaml", tmp_path / "lake", tmp_path / "kept"
    document = yaml.safe_load(defs.read_text(encoding="utf-8"))
    here = {"local_read_s": 15 if local_merge_bytes else 0, "local_merge_bytes": local_merge_bytes}
    document["attributes"] |= {**here, "lake": {"path": str(disk)}, "spark": {"conf": {**TEST_SPARK.conf}}}
    defs.write_text(yaml.safe_dump(document), encoding="utf-8")
    disk.mkdir()
    folder.mkdir()
    shell = ["unshare", "-rm", "sh", "-c", SMALL_DISK, str(disk), "450k", str(disk)]
    command = [*shell, PROGRAM, "sync", str(defs), "--until-caught-up"]
    environment = {**os.environ, "OUT": str(folder)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 1, ended.stderr
    errors = [
        line for line in ended.stderr.splitlines() if line.startswith("DiskFull: There is no room left")
    ]
    assert len(errors) == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "\tat " not in ended.stderr
    shutil.copytree(folder, disk, dirs_exist_ok=True)
    settings = load_settings(defs)
    session = session_of(spark, settings.lake)
    pipeline = sync(open_pipeline(settings), session)
    assert {"customers", "orders"} == {*pipeline.lake.table_names()}
    assert failed_checks(pipeline, session) == {}
