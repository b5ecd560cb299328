"""Settings that Spark is started with by a file that only we may read: its command line is for all to see."""

import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from cdc_platform.errors import SettingError
from cdc_platform.private_files import open_private

SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
"""Environment variable with what PySpark adds to the command line of Spark's launcher."""

NO_ARGUMENTS: Final = "pyspark-shell"
OPTION: Final = "--properties-file"


def conf_folder() -> Path:
    """Return the folder with this machine's settings for all Spark programs; there may be none."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")


def properties_options(path: Path) -> list[str]:
    """Return the launcher's options that add a file of properties to what the machine has set up."""
    return [OPTION, str(path), "--load-spark-defaults"]


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a new file of Java properties that only we may read, in place of one that is there."""
    lines = [f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items()]
    with open_private(path, "wb") as file:
        file.write("".join(lines).encode())


def _escape(text: str) -> str:
    return re.sub(r"([\\=:#! ])", r"\\\1", text).replace("\n", "\\n").replace("\r", "\\r")


@contextmanager
def started_with(properties: Mapping[str, str]) -> Iterator[None]:
    """Hand properties to a classic session that starts meanwhile, by a file that is gone afterwards.

    Raises:
        SettingError: the environment names a file of properties already, and Spark takes one.
    """
    if not properties:
        yield
        return
    arguments = os.environ.get(SUBMIT_ARGUMENTS)
    if arguments is not None and OPTION in arguments:
        raise SettingError(
            "spark.conf",
            f"holds secrets, which Spark takes from a file, but {SUBMIT_ARGUMENTS} names a file of its own; "
            f"put them there: {', '.join(properties)}",
        )
    with tempfile.TemporaryDirectory(prefix="cdc_platform-") as folder:
        path = Path(folder) / "spark.conf"
        write_properties(path, properties)
        os.environ[SUBMIT_ARGUMENTS] = f"{shlex.join(properties_options(path))} {arguments or NO_ARGUMENTS}"
        try:
            yield
        finally:
            _restore(arguments)


def _restore(arguments: str | None) -> None:
    if arguments is None:
        del os.environ[SUBMIT_ARGUMENTS]
    else:
        os.environ[SUBMIT_ARGUMENTS] = arguments
