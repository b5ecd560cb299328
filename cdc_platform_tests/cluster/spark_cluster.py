"""A standalone Spark cluster on loopback: a master, and workers that share nothing with the driver."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from cdc_platform_tests.programs import free_port, start_command

SPARK_HOME: Final = Path(pyspark.__file__).parent
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
WORKERS: Final = 2
READY_S: Final = 60.0
KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR")
"""What a worker's machine has of the environment of the tests: nothing of ours, and no credentials."""

PYTHON: Final = """\
#!/bin/sh
# The Python of a machine that has the libraries, but not the platform.
PYTHONPATH="{site}:$PYTHONPATH" exec "{python}" "$@"
"""
SITE: Final = '''\
"""Finds the platform only where Spark puts it: in an archive that came from the driver."""

import sys
import zipimport


class OnlyArchives:
    """Hides installed packages of one name."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return the spec of the platform in an archive of the path."""
        if name != "cdc_platform":
            return None
        for entry in sys.path:
            if "cdc_platform-" in entry and entry.endswith(".zip"):
                return zipimport.zipimporter(entry).find_spec(name)
        raise ModuleNotFoundError(f"This machine has no {name}; its path is {sys.path}")


sys.meta_path.insert(0, OnlyArchives)
'''


@dataclass(frozen=True)
class SparkCluster:
    """A cluster; ``python`` is the Python of its machines."""

    master: str
    folder: Path
    python: Path


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Run a cluster, whose logs and working folders are in a folder."""
    url = f"spark://127.0.0.1:{free_port()}"
    host, port = url.removeprefix("spark://").split(":")
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environment |= {"SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as stack:
        options = ("--host", host, "--port", port, "--webui-port", "0")
        command = [str(SPARK_HOME / "bin" / "spark-class"), MASTER, *options]
        log = folder / "master.log"
        master = stack.enter_context(start_command(log, command, environment, folder))
        master.wait_for("New state: ALIVE", READY_S)
        for number in range(WORKERS):
            _start_worker(stack, folder / f"worker-{number}", url, environment)
        master.wait_for_count("Registering worker", WORKERS, READY_S)
        yield SparkCluster(url, folder, _make_python(folder / "machine"))


def _start_worker(stack: ExitStack, folder: Path, url: str, environment: Mapping[str, str]) -> None:
    folder.mkdir()
    options = ("-c", "1", "-m", "1g", "-d", str(folder / "work"), "--webui-port", "0", "--host", "127.0.0.1")
    command = [str(SPARK_HOME / "bin" / "spark-class"), WORKER, *options, url]
    own = {**environment, "SPARK_LOCAL_DIRS": str(folder / "local")}
    stack.enter_context(start_command(folder / "worker.log", command, own, folder))


def _make_python(folder: Path) -> Path:
    """Return the Python of the machines: that of the tests, without the platform."""
    site, python = folder / "site", folder / "python"
    site.mkdir(parents=True)
    (site / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    python.write_text(PYTHON.format(site=site, python=sys.executable), encoding="utf-8")
    python.chmod(0o755)
    return python
