"""Java's archives of classes: written by a first process, mapped by all later ones."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from cdc_platform.java.class_archive import CACHE_VARIABLE, UNUSED_S, archive_options
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.jars import CLASS_PATH_SETTING, spark_archive, start_config
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.spark_fixtures import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new cache folder, with a Java that could use it."""
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "my cache"))
    return tmp_path / "my cache" / "cdc_platform"


def place() -> Path:
    """Return where the archive lies."""
    path = spark_archive()
    assert path is not None
    return path


@pytest.mark.parametrize(
    ("content", "option"),
    [
        (None, "-XX:ArchiveClassesAtExit"),  # no process has ended yet
        (b"", "-XX:ArchiveClassesAtExit"),  # the machine went down
        (bytes(4096), "-XX:ArchiveClassesAtExit"),  # being written, or killed meanwhile
        (b"\xa8\xab\x0b\xf0" + bytes(4096), "-XX:SharedArchiveFile"),
    ],
)
def test_only_a_whole_archive_is_mapped(cache: Path, content: bytes | None, option: str) -> None:
    """Any other one is rewritten when the process ends."""
    if content is not None:
        place().write_bytes(content)
    assert f"{option}={place()}" in archive_options(place())
    assert cache == place().parent


def test_each_java_has_an_archive_of_its_own(cache: Path) -> None:
    """An upgrade of Java does not meet the archive of the former one, which it could not use."""
    before = place()
    os.utime(cache.parents[1] / "home" / "bin" / "java", (1, 1))
    assert before != place()


@pytest.mark.usefixtures("cache")
def test_a_spark_that_is_installed_again_has_an_archive_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment created again in the same folder has other jars for Java, even of the same version."""
    jar = tmp_path / "pyspark" / "jars" / "spark-core.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    before = place()
    os.utime(jar, (1, 1))
    assert before != place()


def test_other_jars_have_an_archive_of_their_own(cache: Path) -> None:
    """Java ignores an archive from another class path, and never replaces it."""
    jar = cache.parent / "iceberg.jar"
    jar.parent.mkdir()
    jar.touch()
    paths = {str(spark_archive(path)) for path in ("", str(jar), os.pathsep.join([str(jar), str(jar)]))}
    os.utime(jar, (1, 1))
    assert len(paths | {str(spark_archive(str(jar)))}) == 4


def test_a_class_path_of_the_user_has_an_archive_of_its_own(cache: Path) -> None:
    """Spark gets it in a private file, and its archive would fit no other start."""
    jar, name = cache.parent / "own.jar", "spark.driver.extraJavaOptions"
    jar.parent.mkdir()
    jar.touch()
    # No other start has the jars of a package that the platform does not know.
    spark = SparkSettings(packages=("own:package:1",), conf={CLASS_PATH_SETTING: str(jar)})
    assert str(spark_archive(str(jar))) in start_config(spark, LakeSettings("x"))[name]
    remote = SparkSettings(remote="sc://spark", conf={name: "-Dmine=1"})
    assert start_config(remote, LakeSettings("x"))[name] == "-Dmine=1"


def test_an_archive_that_nothing_uses_is_removed_after_a_month(cache: Path) -> None:
    """A start keeps its own one; what belongs to a Java or a Spark that is gone does not stay for ever."""
    mine = place()
    mine.write_bytes(b"x" * 9)
    old, young = cache / "spark-old.jsa", cache / "spark-young.jsa"
    for file in (mine, old, young):
        file.write_bytes(b"x" * 9)
    long_ago = time.time() - UNUSED_S - 60
    os.utime(old, (long_ago, long_ago))
    archive_options(place())
    assert {mine, young} == set(cache.iterdir())


def test_without_java_or_a_cache_there_is_no_archive(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start says itself that Java is missing; a cache that cannot be made is not a reason to fail."""
    cache.parent.write_text("no folder")
    assert spark_archive() is None
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert archive_options(spark_archive()) == []


@pytest.mark.usefixtures("cache")
def test_it_can_be_switched_off(tmp_path: Path) -> None:
    """`spark.class_archive: false` leaves Java as it is."""
    name, lake = "spark.driver.extraJavaOptions", LakeSettings(str(tmp_path))
    # No other start has the jars of a package that the platform does not know.
    packages = ("own:package:1",)
    assert ".jsa" not in start_config(SparkSettings(packages=packages, class_archive=False), lake)[name]
    assert str(place()) in start_config(SparkSettings(packages=packages), lake)[name]


@pytest.mark.integration
def test_spark_maps_the_archive(spark: "SparkSession") -> None:
    """Java has found it to fit: the file is part of the process's memory."""
    require_java()
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  only the process itself knows its number
    maps = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps")
    if not maps.exists():
        pytest.skip("This system does not state what a process has mapped.")
    class_path = spark.sparkContext.getConf().get(CLASS_PATH_SETTING)
    assert str(spark_archive(class_path or "")) in maps.read_text(encoding="utf-8")
    iceberg = jvm.java.lang.Class.forName("org.apache.iceberg.spark.SparkCatalog")
    assert iceberg.getClassLoader().equals(jvm.java.lang.ClassLoader.getSystemClassLoader())
