"""A jar of the default packages that is not the published one starts no Spark."""

import os
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.errors import JarsUnavailable
from cdc_platform.java.class_archive import archive_options
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.resources import spark_resource, spark_session
from cdc_platform.spark.launch.config import PACKAGES_SETTING, spark_config
from cdc_platform.spark.launch.connect_server import start_connect_server
from cdc_platform.spark.launch.jars import (
    BRINGS,
    CLASS_PATH_SETTING,
    FOLDER_SETTING,
    JAVA_SETTING,
    S3_BUNDLE,
    SHA256,
    check_jars,
    exclusive_fetch,
    spark_archive,
    start_config,
)
from cdc_platform.spark.launch.spark_settings import (
    DEFAULT_PACKAGES,
    POSTGRESQL_DRIVER,
    SparkSettings,
)
from cdc_platform_tests.spark_fixtures import require_java
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

NAMES = (
    "jars/org.xerial_sqlite-jdbc-3.53.4.0.jar",
    "cache/org.xerial/sqlite-jdbc/jars/sqlite-jdbc-3.53.4.0.jar",
)


def test_every_default_package_has_a_checksum() -> None:
    """A newer version needs a newer checksum."""
    assert {*DEFAULT_PACKAGES, POSTGRESQL_DRIVER} <= set(SHA256)
    assert all(set(brought) <= set(SHA256) for brought in BRINGS.values())


@pytest.mark.parametrize("name", NAMES)
def test_another_jar_is_refused(tmp_path: Path, name: str) -> None:
    """The error names the package and the file; what is not there is no mistake."""
    spark = SparkSettings(conf={FOLDER_SETTING: str(tmp_path)})
    check_jars(spark)
    jar = tmp_path / name
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"another one")
    with pytest.raises(JarsUnavailable, match=r"org\.xerial:sqlite-jdbc:3\.53\.4\.0") as caught:
        check_jars(spark)
    assert str(jar) in str(caught.value)


def test_jars_that_have_been_fetched_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark resolves packages only if one is unknown or not cached, or if others may name jars."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    packages = (*DEFAULT_PACKAGES, POSTGRESQL_DRIVER)
    lake = LakeSettings("s3://lakes/lake", {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"})
    spark = SparkSettings(packages=packages, conf={FOLDER_SETTING: str(tmp_path)})
    plain = spark_config(spark, lake)
    all_packages = (*packages, *BRINGS[POSTGRESQL_DRIVER], S3_BUNDLE)
    jars = [f"{tmp_path}/jars/{'{}_{}-{}'.format(*each.split(':'))}.jar" for each in all_packages]
    for jar in map(Path, jars):
        # The archive of such a start would not fit the next one.
        assert plain == start_config(spark, lake)
        jar.parent.mkdir(exist_ok=True)
        jar.touch()
    # Java finds them itself, and archives their classes with Spark's.
    class_path = os.pathsep.join(jars)
    quoted = " ".join(f'"{option}"' for option in archive_options(spark_archive(class_path)))
    options = f"{plain[JAVA_SETTING]} {quoted}"
    others = {name: value for name, value in plain.items() if name != PACKAGES_SETTING}
    assert others | {CLASS_PATH_SETTING: class_path, JAVA_SETTING: options} == start_config(spark, lake)
    for master in ("spark://host:7077", "local-cluster[2,1,1024]"):
        for of_cluster in (
            replace(spark, master=master),
            replace(spark, conf={**spark.conf, "spark.master": master}),
        ):
            cluster = start_config(of_cluster, lake)
            assert (cluster.get("spark.jars"), cluster.get(CLASS_PATH_SETTING)) == (",".join(jars), None)
            assert "spark.driver.host" not in cluster
    other = "org.apache.spark:spark-avro_2.13:4.1.1"
    more = start_config(replace(spark, packages=(*packages, other)), lake)
    with_others = ",".join((*packages, other, S3_BUNDLE))
    assert (more[PACKAGES_SETTING], "spark.jars" in more) == (with_others, False)
    assert start_config(SparkSettings(remote="sc://spark"), lake)["spark.remote"] == "sc://spark"
    (tmp_path / "spark-defaults.conf").touch()
    assert plain[PACKAGES_SETTING] == start_config(spark, lake)[PACKAGES_SETTING]


def test_jars_of_the_user_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`spark.conf` may name further jars, of Spark or of Java: none of the platform's replaces them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    folder = tmp_path / ".ivy2" / "jars"
    folder.mkdir(parents=True)
    for package in DEFAULT_PACKAGES:
        (folder / f"{'{}_{}-{}'.format(*package.split(':'))}.jar").touch()
    named = {}
    for setting in (None, "spark.jars", "spark.jars.excludes", CLASS_PATH_SETTING):
        spark = {"conf": {setting: "own.jar"}} if setting else {}
        settings = load_settings(write_defs(tmp_path, bank_attributes(spark=spark)))
        conf = spark_resource(settings).spark_config
        named[setting] = {*conf} & {"spark.jars", PACKAGES_SETTING, CLASS_PATH_SETTING}
    assert named == {
        None: {CLASS_PATH_SETTING},
        "spark.jars": {PACKAGES_SETTING},
        "spark.jars.excludes": {PACKAGES_SETTING},
        CLASS_PATH_SETTING: {"spark.jars"},
    }


def test_packages_are_fetched_by_one_process_at_a_time(tmp_path: Path) -> None:
    """A start that fetches none waits for no other."""
    folder = {FOLDER_SETTING: str(tmp_path / "ivy")}
    fetches = folder | {PACKAGES_SETTING: "a:b:1"}
    begun, order = Event(), list[str]()

    def start_second() -> None:
        begun.set()
        with exclusive_fetch(fetches):
            order.append("second")

    with exclusive_fetch(fetches):
        thread = Thread(target=start_second)
        thread.start()
        begun.wait()
        with exclusive_fetch(folder):
            order.append("without packages")
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["without packages", "first", "second"]


@pytest.mark.parametrize("folder", ["", "file/ivy"])
def test_a_folder_that_cannot_be_locked_delays_no_start(tmp_path: Path, folder: str) -> None:
    """Spark reports what is wrong with the folder."""
    (tmp_path / "file").touch()
    path = tmp_path / folder if folder else Path("/dev/null")
    with exclusive_fetch({FOLDER_SETTING: str(path), PACKAGES_SETTING: "a:b:1"}):
        assert not path.is_dir()


@pytest.mark.integration
def test_the_published_jars_are_accepted() -> None:
    """The jars with which the tests run have the checksums."""
    require_java()
    assert any(Path.home().glob(f".ivy2*/{NAMES[0]}"))
    check_jars(SparkSettings())


@pytest.mark.integration
def test_no_spark_starts_with_another_jar(tmp_path: Path) -> None:
    """Neither a session nor a server runs what it holds."""
    require_java()
    jar = tmp_path / NAMES[0]
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"another one")
    spark = SparkSettings(conf={FOLDER_SETTING: str(tmp_path)})
    lake = LakeSettings(str(tmp_path / "lake"))
    with pytest.raises(JarsUnavailable, match="differs from the one published"):
        start_connect_server(spark, lake, 1, tmp_path / "log", "token")
    settings = load_settings(write_defs(tmp_path, bank_attributes(spark={"conf": {**spark.conf}})))
    with pytest.raises(JarsUnavailable, match="differs from the one published"):
        spark_session(settings)
