"""One place builds the configuration of every session and server."""

import re
import sys
from pathlib import Path

import pytest

from cdc_platform.errors import JarsUnavailable
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.spark.launch.config import (
    COLLECTOR,
    LOG4J,
    launch_secrets,
    list_jars,
    session_secrets,
    spark_config,
)
from cdc_platform.spark.launch.spark_settings import (
    DEFAULT_PACKAGES,
    POSTGRESQL_DRIVER,
    SparkSettings,
)

DELEGATION = "header.X-Iceberg-Access-Delegation"
"""A header: others hold tokens, so all are hidden."""


def test_a_sleeping_machine_loses_no_executor(tmp_path: Path) -> None:
    """Only a cluster has executors that can be lost; the driver's own sleeps and wakes with it."""
    setting = "spark.storage.blockManagerHeartbeatTimeoutMs"
    masters = {"local[2]": "1000d", "spark://host:7077": None, "local-cluster[2,1,1024]": None}
    lake = LakeSettings(str(tmp_path))
    assert masters == {
        master: spark_config(SparkSettings(master=master), lake).get(setting) for master in masters
    }


def test_a_classic_session_has_all_that_the_platform_needs(tmp_path: Path) -> None:
    """Catalog, jars, time zone, loopback and the interpreter that runs us."""
    conf = spark_config(SparkSettings(master="local[3]", driver_memory="1g"), LakeSettings(str(tmp_path)))
    assert conf["spark.master"] == "local[3]"
    assert conf["spark.driver.memory"] == "1g"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.pyspark.python"] == sys.executable
    assert conf["spark.jars.packages"] == ",".join(DEFAULT_PACKAGES)
    assert conf["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert conf["spark.sql.catalog.lake.warehouse"] == tmp_path.as_uri()
    assert conf["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert LOG4J.exists()


@pytest.mark.parametrize(
    "place",
    [
        "JAVA_TOOL_OPTIONS",
        "PYSPARK_SUBMIT_ARGS",
        "SPARK_DAEMON_JAVA_OPTS",
        "spark-defaults.conf",
        "java-opts",
        "",
    ],
)
def test_one_garbage_collector_is_chosen(place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The platform has one of its own, unless Spark or Java gets another: with two, Java does not start."""
    name = "spark.driver.defaultJavaOptions"
    other, lake = f'{name} "-Xmx9g -XX:+UseZGC"', LakeSettings("x")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:-UsePerfData")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(f"# {other}\nspark.executor.extraJavaOptions -XX:+UseG1GC")
    assert COLLECTOR in spark_config(SparkSettings(), lake)["spark.driver.extraJavaOptions"].split()
    if place == place.upper():
        monkeypatch.setenv(place or "UNUSED", other)
    else:
        (tmp_path / place).write_text(f"spark.ui.enabled false\n{other}")
    spark = SparkSettings(conf={} if place else {name: other})
    assert "GC" not in spark_config(spark, lake)["spark.driver.extraJavaOptions"]


def test_settings_win_over_the_platform(tmp_path: Path) -> None:
    """A setting in `spark.conf` is not overwritten."""
    spark = SparkSettings(conf={"spark.sql.shuffle.partitions": "64", "spark.ui.enabled": "true"})
    conf = spark_config(spark, LakeSettings(str(tmp_path)))
    assert (conf["spark.sql.shuffle.partitions"], conf["spark.ui.enabled"]) == ("64", "true")


def test_a_remote_session_gets_only_what_a_client_may_set(tmp_path: Path) -> None:
    """Catalog and jars are the server's own; what decides on results is the same everywhere."""
    spark = SparkSettings(remote="sc://spark:15002", conf={"spark.sql.shuffle.partitions": "64"})
    conf = spark_config(spark, LakeSettings(str(tmp_path)))
    assert conf["spark.remote"] == "sc://spark:15002"
    assert conf["spark.sql.shuffle.partitions"] == "64"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.variable.substitute"] == "false"
    assert {
        name for name in conf if name.startswith(("spark.jars", "spark.driver", "spark.sql.catalog"))
    } == set()


def test_secrets_stay_away_from_the_command_line(tmp_path: Path) -> None:
    """A process of our own gets them from a file; its session gets those of catalogs again."""
    own = {"spark.authenticate.secret": "a", "spark.sql.catalog.lake.token": "b"}
    spark = SparkSettings(conf={**own, "spark.authenticate": "true"})
    lake = LakeSettings("gs://b/l", {"type": "rest", "uri": "http://c", "token": "other"})
    conf = spark_config(spark, lake)
    assert conf["spark.authenticate"] == "true"
    assert set() == own.keys() & conf.keys()
    vended = {f"spark.sql.catalog.lake.{DELEGATION}": "vended-credentials"}
    assert own | vended == launch_secrets(spark, lake)
    assert session_secrets(spark, lake) == {"spark.sql.catalog.lake.token": "b", **vended}
    remote = SparkSettings(remote="sc://spark:15002", conf=own)
    assert own.items() <= spark_config(remote, LakeSettings(str(tmp_path))).items()
    assert launch_secrets(remote, lake) == session_secrets(remote, lake) == {}


def test_only_what_is_harmless_is_on_the_command_line(tmp_path: Path) -> None:
    """An unknown setting goes by the file, even if it replaces one of the platform's own."""
    catalog = {
        "type": "rest",
        "uri": "https://me:hush@c/api",
        "s3.sse.key": "hush",
        "s3.endpoint": "http://s",
    }
    own = {
        "spark.hadoop.fs.azure.account.x": "hush",
        "spark.jars.repositories": "https://me:hush@maven",
        "spark.sql.sources.apikey": "hush",
        "spark.driver.extraJavaOptions": "-Dproxy.pwd=hush",
    }
    spark = SparkSettings(conf={**own, "spark.executor.memory": "1g"})
    lake = LakeSettings("s3://b/l", catalog)
    conf, hidden = spark_config(spark, lake), launch_secrets(spark, lake)
    assert "hush" not in str(conf)
    assert (conf["spark.executor.memory"], conf["spark.sql.catalog.lake.s3.endpoint"]) == ("1g", "http://s")
    prefix = "spark.sql.catalog.lake"
    hidden_names = ("uri", "s3.sse.key", DELEGATION)
    assert {*own, *(f"{prefix}.{name}" for name in hidden_names)} == set(hidden)
    assert not conf.keys() & hidden.keys()
    plain = LakeSettings(str(tmp_path))
    assert launch_secrets(SparkSettings(), plain) == {}


@pytest.mark.parametrize(
    ("name", "value", "is_hidden"),
    [
        ("spark.sql.catalog.lake.s3.sse.key", "x", True),
        ("spark.sql.catalog.lake.somebody.invents", "x", True),
        ("spark.sql.catalog.lake.header.X-Tenant", "x", True),
        ("spark.hadoop.javax.jdo.option.ConnectionPwd", "x", True),
        ("kafka.sasl.jaas.config", "x", True),
        ("spark.sql.catalog.lake.uri", "https://me:x@host", True),
        ("spark.sql.catalog.lake.uri", "jdbc:sqlite:/lakes/a.db?busy_timeout=60000", False),
        ("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog", False),
        ("spark.executor.memory", "1g", False),
    ],
)
def test_spark_redacts_what_may_be_a_secret(name: str, value: str, *, is_hidden: bool) -> None:
    """Spark replaces a value where its expression is found in the name or in the value itself."""
    expression = spark_config(SparkSettings(), LakeSettings("x"))["spark.redaction.regex"]
    assert is_hidden == any(re.search(expression, text) for text in (name, value))


def test_a_remote_address_is_shown_without_its_token() -> None:
    """Its parameters, of which the token is one, are for the server alone."""
    spark = SparkSettings(remote="sc://spark:443/;token=hidden;x-id=1")
    assert spark.address == "sc://spark:443/"
    assert "hidden" not in repr(spark)
    assert SparkSettings(master="local[3]").address == "local[3]"


def test_a_postgresql_catalog_brings_its_driver(tmp_path: Path) -> None:
    """The driver is fetched only where it is needed."""
    lake = LakeSettings(str(tmp_path), {"type": "sql", "uri": "postgresql+psycopg2://u:p@h/d"})
    assert POSTGRESQL_DRIVER in spark_config(SparkSettings(), lake)["spark.jars.packages"]


def test_a_folder_of_jars_replaces_packages(tmp_path: Path) -> None:
    """Nothing is fetched then, and only jars are taken."""
    for name in ("b.jar", "a.jar", "readme.txt"):
        (tmp_path / name).touch()
    conf = spark_config(SparkSettings(jars_folder=str(tmp_path)), LakeSettings(str(tmp_path)))
    assert conf["spark.jars"] == f"{tmp_path}/a.jar,{tmp_path}/b.jar"
    assert "spark.jars.packages" not in conf


def test_a_folder_without_jars_is_an_error(tmp_path: Path) -> None:
    """The error names the setting, the folder and what belongs there."""
    with pytest.raises(JarsUnavailable, match=r"spark\.jars_folder.*Maven Central") as caught:
        list_jars(str(tmp_path))
    assert str(tmp_path) in str(caught.value)
