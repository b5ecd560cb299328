"""Settings of Spark are checked before it starts."""

from typing import Any

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.spark.launch.spark_settings import SparkSettings


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("master", text) for text in ("locl[2]", "local[two]", "local [2]", "spark://host", "")),
        *(("remote", text) for text in ("spark:15002", "sc://", "sc://host:port", "http://host:15002")),
        *(("driver_memory", text) for text in ("2", "2gb", "2 g", "0g", "lots")),
        ("packages.0", ("iceberg",)),
        ("packages.1", ("a:b:1", "a::1")),
        ("conf.sql.shuffle.partitions", {"sql.shuffle.partitions": "4"}),  # Spark would ignore it
    ],
)
def test_what_spark_would_refuse_later_is_refused(setting: str, value: Any) -> None:
    """The error names the setting."""
    with pytest.raises(SettingError) as caught:
        SparkSettings(**{setting.partition(".")[0]: value})
    assert f"spark.{setting}" == caught.value.setting


def test_a_setting_of_spark_is_written_with_its_prefix() -> None:
    """The error has the name as it is to be written, for Spark and for Hadoop."""
    with pytest.raises(
        SettingError, match=r"`spark\.executor\.memory`, or `spark\.hadoop\.executor\.memory`"
    ):
        SparkSettings(conf={"executor.memory": "2g"})


def test_a_token_is_not_repeated() -> None:
    """The parameters of an address stay out of its error."""
    with pytest.raises(SettingError) as caught:
        SparkSettings(remote="spark:15002/;token=hush")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(
            ("master", text)
            for text in ("local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn")
        ),
        *(("master", text) for text in ("spark://a:7077,b:7077", "k8s://https://host:6443")),
        *(("master", text) for text in ("spark://[2001:db8::1]:7077", "local[2 , 3]")),
        ("packages", ("group/artifact:1",)),
        *(("remote", text) for text in ("sc://host", "sc://127.0.0.1:15002/;token=abc")),
        *(("driver_memory", text) for text in ("512m", "4G")),
    ],
)
def test_what_spark_takes_is_taken(setting: str, value: Any) -> None:
    """All kinds of masters, addresses and sizes that Spark documents are settings."""
    assert getattr(SparkSettings(**{setting: value}), setting) == value
