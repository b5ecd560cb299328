"""The jars that Spark downloads by default, which must match the published ones."""

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark

from cdc_platform.errors import JarsUnavailable
from cdc_platform.java.class_archive import archive_file, archive_options
from cdc_platform.java.java_program import find_java
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.config import JARS_SETTING, PACKAGES_SETTING, spark_config
from cdc_platform.spark.launch.properties import SUBMIT_ARGUMENTS, conf_folder
from cdc_platform.spark.launch.spark_settings import DEFAULT_PACKAGES, POSTGRESQL_DRIVER, SparkSettings

SHA256: Final = {
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0": (
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
    ),
    "org.xerial:sqlite-jdbc:3.53.4.0": "bcb1f51e36f940867e83342f9efbf5968ac44a6bef4d397bb4af7b17b45cd2fb",
    "org.postgresql:postgresql:42.7.14": "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
    # Dependencies of the PostgreSQL driver.
    "org.checkerframework:checker-qual:3.55.1": (
        "857658c8bdcbff794949a8d9922f88d63ee3751c203c7cd7d21ea97f9e745288"
    ),
}
"""Checksums of the platform's default packages, as published on Maven Central."""
S3_BUNDLE: Final = f"org.apache.iceberg:iceberg-aws-bundle:{DEFAULT_PACKAGES[0].rpartition(':')[2]}"
"""May come before Spark's jars on the class path: of its classes, they have none."""
BRINGS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((*DEFAULT_PACKAGES, S3_BUNDLE), ()),
    POSTGRESQL_DRIVER: ("org.checkerframework:checker-qual:3.55.1",),
}
"""Packages with all of their dependencies, except those that Spark includes."""
FOLDER_SETTING: Final = "spark.jars.ivy"
CLASS_PATH_SETTING: Final = "spark.driver.extraClassPath"
JAVA_SETTING: Final = "spark.driver.extraJavaOptions"


def check_jars(spark: SparkSettings) -> None:
    """Compare the default packages in Spark's cache with their checksums.

    Spark compares a jar only when it downloads it, with a checksum from the same server.

    Raises:
        JarsUnavailable: a jar differs.
    """
    for package, expected_digest in SHA256.items():
        for jar in _cached_jars(package, spark.conf.get(FOLDER_SETTING)):
            with jar.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != expected_digest:
                raise JarsUnavailable(
                    f"A jar differs from the one published as {package} (its SHA-256 is {digest}). "
                    f"Find out who has changed it, delete it and start again: {jar}"
                )


def start_config(spark: SparkSettings, lake: LakeSettings) -> dict[str, str]:
    """Return the settings for a start, with the jars of packages if all are in Spark's cache.

    Spark would resolve the packages at each start (0.4 s of processor time), and add their jars to Python's
    path, too: each worker reads the directory of Iceberg's jar before a task (0.2 s).
    """
    conf = spark_config(spark, lake)
    packages = conf.get(PACKAGES_SETTING, "").split(",")
    has_others = any(name.startswith("spark.jars") for name in {*spark.conf} - {FOLDER_SETTING})
    # Arguments or settings of this machine for all Spark programs may name jars, too.
    has_defaults = SUBMIT_ARGUMENTS in os.environ or (conf_folder() / "spark-defaults.conf").is_file()
    if has_others or has_defaults or not all(package in BRINGS for package in packages):
        return _with_archive(conf, spark)
    jars = _find_jars(packages, spark.conf.get(FOLDER_SETTING))
    if jars is None:
        # The archive of this start would not fit the next one.
        return conf
    del conf[PACKAGES_SETTING]
    if not spark.is_local or CLASS_PATH_SETTING in spark.conf:
        return _with_archive(conf | {JARS_SETTING: ",".join(map(str, jars))}, spark)
    # Jars of `spark.jars` would be copied at each start, and their classes would be in no archive.
    return _with_archive(conf | {CLASS_PATH_SETTING: os.pathsep.join(map(str, jars))}, spark)


@contextmanager
def exclusive_fetch(conf: Mapping[str, str]) -> Iterator[None]:
    """Start Spark within the context: if it fetches packages, no other process does so meanwhile.

    Ivy locks nothing by default: of two processes that fetch the same jar, one deletes the other's part.

    Args:
        conf: the settings of the start.
    """
    with ExitStack() as lock:
        if PACKAGES_SETTING in conf:
            folder = Path(conf.get(FOLDER_SETTING, Path.home()))
            # Where folders cannot be locked, Spark starts without it.
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                lock.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _with_archive(conf: dict[str, str], spark: SparkSettings) -> dict[str, str]:
    if spark.remote is not None or not spark.class_archive or JAVA_SETTING not in conf:
        return conf
    # The user's class path is not on the command line, as it may contain secrets.
    class_path = spark.conf.get(CLASS_PATH_SETTING, conf.get(CLASS_PATH_SETTING, ""))
    options = [f'"{option}"' for option in archive_options(spark_archive(class_path))]
    return conf | {JAVA_SETTING: " ".join([conf[JAVA_SETTING], *options])}


def spark_archive(class_path: str = "") -> Path | None:
    """Return the archive of Spark's process; ``class_path`` names the jars before Spark's own."""
    jars = Path(pyspark.__file__).parent.glob("jars/*.jar")
    first = map(Path, class_path.split(os.pathsep) if class_path else ())
    return archive_file("spark", find_java(), [*first, *sorted(jars)])


def _find_jars(packages: Sequence[str], folder: str | None) -> list[Path] | None:
    """Return the jars of packages and their dependencies; None if one is missing in the cache."""
    all_packages = dict.fromkeys(each for package in packages for each in (package, *BRINGS[package]))
    cached_jars = [next(_cached_jars(package, folder), None) for package in all_packages]
    jars = [jar for jar in cached_jars if jar is not None and not {",", os.pathsep} & {*str(jar)}]
    return jars if len(jars) == len(cached_jars) else None


def _cached_jars(package: str, folder: str | None) -> Iterator[Path]:
    group, name, version = package.split(":")
    folders: Iterable[Path] = [Path(folder)] if folder is not None else Path.home().glob(".ivy2*")
    for each in folders:
        yield from each.glob(f"jars/{group}_{name}-{version}.jar")
        yield from each.glob(f"cache/{group}/{name}/jars/{name}-{version}.jar")
