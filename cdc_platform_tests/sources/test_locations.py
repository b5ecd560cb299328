"""Locations of files: what is read, under which name, and what is refused before any request."""

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform.sources.locations import arrow_location, check_location, scheme_of

CONTAINER = "abfss://box@account.dfs.core.windows.net/p"


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("file:///files", "file:///files"),
        ("s3://bucket/p", "s3://bucket/p"),
        ("s3a://bucket/p?region=eu-west-1", "s3://bucket/p?region=eu-west-1"),
        ("s3n://bucket", "s3://bucket"),
        (CONTAINER, CONTAINER),
        ("wasbs://box@account.blob.core.windows.net/p", CONTAINER),
        ("wasb://box@account.blob.core.windows.net/p", CONTAINER.replace("abfss", "abfs")),
        # the account alone stands before that host, and the container behind it
        ("abfss://account.blob.core.windows.net/box/p", "abfss://account.blob.core.windows.net/box/p"),
        ("hdfs://name-node:8020/p", "hdfs://name-node:8020/p"),
        ("viewfs://cluster/p", "viewfs://cluster/p"),
        ("gs://bucket/p", "gs://bucket/p?retry_limit_seconds=20"),
        ("gcs://me@bucket/p?scheme=http", "gs://me@bucket/p?scheme=http&retry_limit_seconds=20"),
        ("gs://bucket/p?retry_limit_seconds=5", "gs://bucket/p?retry_limit_seconds=5"),
    ],
)
def test_schemes_are_those_that_arrow_knows(location: str, expected: str) -> None:
    """Hadoop's names of a store stand for the store, and Google's client gives up before the deadline."""
    check_location("path", location)
    assert expected == arrow_location(location, 60.0)


def test_a_folder_has_no_scheme() -> None:
    """Every location without a scheme is a local path, and always a place."""
    check_location("path", "files/of/a stream")
    assert scheme_of("files/of/a stream") is None


@pytest.mark.parametrize("location", ["oss://bucket/p", "S3://bucket/p", "https://host/p", "://p"])
def test_a_scheme_that_nothing_reads_is_refused(location: str) -> None:
    """The error names setting and scheme, those that there are, and two ways to read the files anyway."""
    scheme = location.partition(":")[0]
    message = (
        rf"`path` has the unsupported scheme `{scheme}`.*gs://, .*endpoint_override=.*mount any.*: {location}"
    )
    with pytest.raises(SettingError, match=message):
        check_location("path", location)


def test_files_of_debezium_are_refused_by_the_name_of_their_setting() -> None:
    """A pipeline of files in such a place is refused when its settings are made."""
    with pytest.raises(SettingError, match=r"`input\.files\.path` has the unsupported scheme `oss`"):
        FilesInput("oss://bucket/p")
