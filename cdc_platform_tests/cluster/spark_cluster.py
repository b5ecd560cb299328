"""A standalone Spark cluster on loopback: a master, and workers that share nothing with the driver."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from cdc_platform_tests.java_options import mapped_options
from cdc_platform_tests.programs import Program, free_port, start_command

SPARK_HOME: Final = Path(pyspark.__file__).parent
SPARK_CLASS: Final = str(SPARK_HOME / "bin" / "spark-class")
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
WORKERS: Final = 2
READY_S: Final = 300.0
PRIVATE: Final = "-Dspark.authenticate=true -Dspark.master.rest.enabled=false"
"""A client without the cluster's secret is refused; the entrance without secrets is closed."""
KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR")
"""Environment of a worker's machine: none of the tests' variables, and no credentials."""

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

    url: str
    folder: Path
    python: Path
    master: Program

    def wait_until_ready(self) -> None:
        """Return when all workers belong to it."""
        self.master.wait_for("Registering worker", READY_S, times=WORKERS)

    def executor_logs(self) -> list[str]:
        """Return what each worker's executors have written to their logs."""
        return [
            "\n".join(
                log.read_text(encoding="utf-8", errors="replace") for log in sorted(worker.rglob("stderr"))
            )
            for worker in sorted(self.folder.glob("worker-*"))
        ]


@contextmanager
def spark_cluster(folder: Path, secret: str) -> Iterator[SparkCluster]:
    """Start a cluster for those who know its secret; its logs and working folders are in a new folder."""
    url = f"spark://127.0.0.1:{free_port()}"
    folder.mkdir()
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environment |= {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{mapped_options()} {PRIVATE}",
        "_SPARK_AUTH_SECRET": secret,
    }
    with ExitStack() as stack:
        master = stack.enter_context(_start_master(folder, url, environment))
        # A worker that comes too early tries again seconds later.
        master.wait_for("elected leader", READY_S)
        for number in range(WORKERS):
            stack.enter_context(_start_worker(folder / f"worker-{number}", url, environment))
        yield SparkCluster(url, folder, _make_python(folder / "machine"), master)


def _start_master(folder: Path, url: str, environment: Mapping[str, str]) -> AbstractContextManager[Program]:
    host, port = url.removeprefix("spark://").split(":")
    options = ("--host", host, "--port", port, "--webui-port", "0")
    return start_command(folder / "master.log", [SPARK_CLASS, MASTER, *options], environment, folder)


def _start_worker(folder: Path, url: str, environment: Mapping[str, str]) -> AbstractContextManager[Program]:
    folder.mkdir()
    options = ("-c", "1", "-m", "1g", "-d", str(folder / "work"), "--webui-port", "0", "--host", "127.0.0.1")
    own = {**environment, "SPARK_LOCAL_DIRS": str(folder / "local")}
    return start_command(folder / "worker.log", [SPARK_CLASS, WORKER, *options, url], own, folder)


def _make_python(folder: Path) -> Path:
    """Return the Python of the machines: that of the tests, without the platform."""
    site, python = folder / "site", folder / "python"
    site.mkdir(parents=True)
    (site / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    python.write_text(PYTHON.format(site=site, python=sys.executable), encoding="utf-8")
    python.chmod(0o755)
    return python
