"""Settings for Spark's start in a private file, since every user can read its command line."""

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
"""Environment variable with PySpark's additions to the command line of Spark's launcher."""

NO_ARGUMENTS: Final = "pyspark-shell"
OPTION: Final = "--properties-file"


def conf_folder() -> Path:
    """Return the folder with this machine's settings for all Spark programs, which may not exist."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")


def properties_options(path: Path) -> list[str]:
    """Return the launcher's options that add a properties file to the machine's settings."""
    return [OPTION, str(path), "--load-spark-defaults"]


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a private file of Java properties, and replace an existing one."""
    lines = [f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items()]
    with open_private(path, "wb") as file:
        file.write("".join(lines).encode())


def _escape(text: str) -> str:
    return re.sub(r"([\\=:#! ])", r"\\\1", text).replace("\n", "\\n").replace("\r", "\\r")


@contextmanager
def started_with(properties: Mapping[str, str]) -> Iterator[None]:
    """Pass properties to a classic session that starts within the context, in a temporary file.

    Raises:
        SettingError: the environment already names a properties file, and Spark accepts only one.
    """
    if not properties:
        yield
        return
    arguments = os.environ.get(SUBMIT_ARGUMENTS)
    if arguments is not None and OPTION in arguments:
        raise SettingError(
            "spark.conf",
            f"holds secrets, which Spark takes from a file, but {SUBMIT_ARGUMENTS} names a separate file; "
            f"put them there: {', '.join(properties)}",
        )
    with tempfile.TemporaryDirectory(prefix="cdc_platform-") as folder:
        path = Path(folder) / "spark.conf"
        write_properties(path, properties)
        os.environ[SUBMIT_ARGUMENTS] = f"{shlex.join(properties_options(path))} {arguments or NO_ARGUMENTS}"
        try:
            yield
        finally:
            os.environ.pop(SUBMIT_ARGUMENTS)
            os.environ |= {} if arguments is None else {SUBMIT_ARGUMENTS: arguments}
