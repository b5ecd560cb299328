"""A disk that fills up ends a command with one line, once it has tried again, and loses nothing."""

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
SYNC: Final = """
import sys
from cdc_platform.cli import main
from cdc_platform.commands.operating import sync
from cdc_platform.pipeline import cycle_loop

# Nobody makes room between two tries of a cycle, and a third one would end as the second.
cycle_loop.BACKOFF_MAX_S = 0.0
sync.MAX_FAILURES = 2
main(["sync", sys.argv[1]])
"""
"""Runs the command."""
ROOM: Final = 520
"""Kilobytes: enough for raw records, too few for the tables. A worker that fails prints its own trace."""
SMALL_DISK: Final = (
    'mount -t tmpfs -o size="$1"k tmpfs "$2" && shift 2 && "$@"; code=$?; cp -r "$LAKE/." "$OUT"; exit $code'
)
"""Runs a command in a separate namespace, in which a folder is a small disk, and keeps what is on it."""


def declare(folder: Path) -> Path:
    """Write the file of the example's pipeline, whose cycles Spark reads and merges."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    defs = folder / "defs.yaml"
    document = yaml.safe_load(defs.read_text(encoding="utf-8"))
    attributes = document["attributes"]
    attributes["source"]["path"] = str(folder / attributes["source"]["path"])
    bounds = {"local_read_s": 0, "local_merge_bytes": 0}
    attributes |= {"lake": {"path": str(folder / "lake")}, "spark": {"conf": {**TEST_SPARK.conf}}, **bounds}
    defs.write_text(yaml.safe_dump(document), encoding="utf-8")
    return defs


@pytest.mark.integration
def test_a_full_disk_is_an_error_of_one_line(spark: "SparkSession", tmp_path: Path) -> None:
    """One line says what to do when Spark cannot write any more; with room the next start continues.

    `pipeline/test_failing_effects.py` fills the disk of what this process writes.
    """
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("No small disk can be mounted here: this user may not create a namespace")
    defs, disk, kept = declare(tmp_path), tmp_path / "lake", tmp_path / "kept"
    disk.mkdir()
    kept.mkdir()
    shell = ["unshare", "-rm", "sh", "-c", SMALL_DISK, "sh", str(ROOM), str(disk)]
    environment = {**os.environ, "LAKE": str(disk), "OUT": str(kept)}
    ended = subprocess.run(
        [*shell, sys.executable, "-c", SYNC, str(defs)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    errors = [
        line for line in ended.stderr.splitlines() if line.startswith("DiskFull: No disk space is left")
    ]
    assert len([line for line in errors if not line.endswith("Trying again.")]) == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "\tat " not in ended.stderr
    shutil.copytree(kept, disk, dirs_exist_ok=True)
    settings = load_settings(defs)
    session = session_of(spark, settings.lake)
    pipeline = sync(open_pipeline(settings), session)
    assert {"customers", "orders"} == {*pipeline.lake.table_names()}
    assert failed_checks(pipeline, session) == {}
