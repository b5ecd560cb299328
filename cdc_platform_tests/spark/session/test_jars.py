"""A jar of the default packages that is not the published one starts no Spark."""

from pathlib import Path

import pytest

from cdc_platform.components.loading import load_settings
from cdc_platform.errors import JarsUnavailable
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.resources import spark_session
from cdc_platform.spark.session.connect_server import start_connect_server
from cdc_platform.spark.session.jars import (
    BRINGS,
    FOLDER_SETTING,
    PACKAGES_SETTING,
    SHA256,
    check_jars,
    with_fetched_jars,
)
from cdc_platform.spark.session.spark_settings import (
    DEFAULT_PACKAGES,
    KAFKA_CONNECTOR,
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
    assert {*DEFAULT_PACKAGES, POSTGRESQL_DRIVER, KAFKA_CONNECTOR} <= set(SHA256)
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
    packages = ",".join((*DEFAULT_PACKAGES, POSTGRESQL_DRIVER))
    conf = {PACKAGES_SETTING: packages, FOLDER_SETTING: str(tmp_path), "spark.master": "local[2]"}
    brought = [package for packages in BRINGS.values() for package in packages]
    jars = [f"{tmp_path}/jars/{'{}_{}-{}'.format(*each.split(':'))}.jar" for each in (*BRINGS, *brought)]
    for jar in map(Path, jars):
        assert conf == with_fetched_jars(conf)
        jar.parent.mkdir(exist_ok=True)
        jar.touch()
    named = {"spark.jars": ",".join(jars), FOLDER_SETTING: str(tmp_path), "spark.master": "local[2]"}
    assert named == with_fetched_jars(conf)
    for other in (
        {PACKAGES_SETTING: f"{packages},{KAFKA_CONNECTOR}"},
        {"spark.jars": "own.jar"},
        {"spark.jars.excludes": "a:b"},
    ):
        assert conf | other == with_fetched_jars(conf | other)
    assert with_fetched_jars({"spark.remote": "sc://spark"}) == {"spark.remote": "sc://spark"}
    (tmp_path / "spark-defaults.conf").touch()
    assert conf == with_fetched_jars(conf)


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
