"""One block of catalog settings, translated for pyiceberg and for Spark."""

from pathlib import Path
from typing import Final

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.lake_settings import LakeSettings, is_secret, local_folder

S3_FILE_IO: Final = "org.apache.iceberg.aws.s3.S3FileIO"


def test_the_default_is_a_sqlite_file_that_both_sides_share(tmp_path: Path) -> None:
    """Spark and pyiceberg get the same file, the same warehouse, and wait for each other."""
    lake = LakeSettings(str(tmp_path))
    file = f"{tmp_path}/catalog.db"
    assert lake.pyiceberg_properties() == {
        "type": "sql",
        "uri": f"sqlite:///{file}?timeout=60",
        "warehouse": f"file://{tmp_path}",
    }
    assert lake.spark_properties() == {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{file}?busy_timeout=60000",
        "warehouse": f"file://{tmp_path}",
        "jdbc.schema-version": "V1",
    }


def test_a_folder_is_called_as_it_is_called(tmp_path: Path) -> None:
    """A name with spaces is no other name, and one that an address cannot have is refused."""
    assert LakeSettings(f"{tmp_path}/my läke").warehouse == f"file://{tmp_path}/my läke"
    with pytest.raises(SettingError, match=r"`lake.path` has characters .* \(# %\)"):
        LakeSettings(f"{tmp_path}/100%#1").pyiceberg_properties()


LOGIN: Final = {"s3.access-key-id": "me", "s3.secret-access-key": "secret"}


@pytest.mark.parametrize("version", [1, 4])
def test_a_format_version_without_row_level_deletes_is_refused(version: int) -> None:
    """Tables are merged, which takes version 2 or 3; an unknown version is named."""
    with pytest.raises(SettingError, match=f"`lake.table_format_version` must be 2 or 3, but is: {version}"):
        LakeSettings("lake", table_format_version=version)


@pytest.mark.parametrize(
    ("catalog", "expected"),
    [
        (  # a file elsewhere
            {"type": "sql", "uri": "sqlite:////data/c.db?timeout=5"},
            {
                "type": "jdbc",
                "uri": "jdbc:sqlite:/data/c.db?busy_timeout=60000",
                "jdbc.schema-version": "V1",
                "io-impl": S3_FILE_IO,
            },
        ),
        (  # user and password leave the address, decoded
            {"type": "sql", "uri": "postgresql+psycopg2://me:p%40ss@db:6432/lake"},
            {
                "type": "jdbc",
                "uri": "jdbc:postgresql://db:6432/lake",
                "jdbc.schema-version": "V1",
                "jdbc.user": "me",
                "jdbc.password": "p@ss",
                "io-impl": S3_FILE_IO,
            },
        ),
        (  # the usual port, no login
            {"type": "sql", "uri": "postgresql+psycopg2://db/lake"},
            {
                "type": "jdbc",
                "uri": "jdbc:postgresql://db:5432/lake",
                "jdbc.schema-version": "V1",
                "io-impl": S3_FILE_IO,
            },
        ),
        (  # further properties pass as they are
            {"type": "rest", "uri": "http://catalog:8181", "token": "abc", **LOGIN},
            {"type": "rest", "uri": "http://catalog:8181", "token": "abc", **LOGIN},
        ),
        (  # no address; a region has another name
            {"type": "glue", "s3.region": "eu-west-1"},
            {"type": "glue", "client.region": "eu-west-1", "io-impl": S3_FILE_IO},
        ),
        (  # a server of one's own has no name for each bucket
            {"type": "rest", "uri": "http://c", "s3.endpoint": "http://s", **LOGIN},
            {
                "type": "rest",
                "uri": "http://c",
                "s3.endpoint": "http://s",
                "s3.path-style-access": "true",
                **LOGIN,
            },
        ),
        (  # without credentials, the catalog vends them
            {"type": "rest", "uri": "http://c"},
            {
                "type": "rest",
                "uri": "http://c",
                "header.X-Iceberg-Access-Delegation": "vended-credentials",
                "rest-table-cache.expire-after-write-ms": "1",
            },
        ),
        (  # unless it has
            {"type": "glue", "s3.endpoint": "http://s", "s3.force-virtual-addressing": "True"},
            {
                "type": "glue",
                "s3.endpoint": "http://s",
                "s3.force-virtual-addressing": "True",
                "io-impl": S3_FILE_IO,
            },
        ),
        (  # a choice wins
            {"type": "hive", "uri": "thrift://h:1", "io-impl": "x.FileIO"},
            {"type": "hive", "uri": "thrift://h:1", "io-impl": "x.FileIO"},
        ),
    ],
)
def test_catalogs_are_translated_for_spark(catalog: dict[str, str], expected: dict[str, str]) -> None:
    """Every property that Spark needs is there, under Spark's name."""
    lake = LakeSettings("s3://bucket/lake", catalog)
    always = {"warehouse": "s3://bucket/lake", "io.manifest.cache-enabled": "true"}
    assert {**expected, **always} == lake.spark_properties()
    assert {**catalog, "warehouse": "s3://bucket/lake"} == lake.pyiceberg_properties()


def test_a_login_may_be_separate_from_the_address() -> None:
    """A password from a variable may hold any character: each side gets it in its own form."""
    login = {"user": "me", "password": "p@ss/w:rd é%"}
    lake = LakeSettings("s3://b/l", {"type": "sql", "uri": "postgresql+psycopg2://db:6432/lake", **login})
    properties = lake.pyiceberg_properties()
    assert properties["uri"] == "postgresql+psycopg2://me:p%40ss%2Fw%3Ard%20%C3%A9%25@db:6432/lake"
    assert set() == login.keys() & properties.keys()
    actual = lake.spark_properties()
    assert (actual["jdbc.user"], actual["jdbc.password"]) == ("me", "p@ss/w:rd é%")
    assert actual["uri"] == "jdbc:postgresql://db:6432/lake"


def test_credentials_are_in_no_representation() -> None:
    """Settings may end up in a traceback or a log."""
    keys = {"s3.access-key-id": "me", "s3.secret-access-key": "hush"}
    assert "hush" not in repr(LakeSettings("s3://b/l", {"type": "glue", **keys}))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("s3.secret-access-key", True),
        ("s3.access-key-id", True),
        ("s3.session-token", True),
        ("jdbc.password", True),
        ("credential", True),  # of a REST catalog
        ("header.Authorization", True),
        ("adls.auth.shared-key.account.key", True),
        ("gcs.oauth2.token", True),
        ("adls.connection-string.account", True),
        ("s3.sse.key", True),
        ("header.X-Tenant", True),
        ("my-apikey", True),
        ("proxy.pwd", True),
        ("hive.sasl.jaas", True),
        ("ssl.keystore.key", True),
        ("basic.auth.user.info", True),
        ("whatever.somebody.invents", True),
        ("uri", False),
        ("warehouse", False),
        ("s3.endpoint", False),
        ("client.region", False),
    ],
)
def test_secrets_are_known_by_name(name: str, *, expected: bool) -> None:
    """The name of a property decides whether its value is hidden."""
    assert expected == is_secret(name)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://me:hush@catalog.example.com/api", True),
        ("jdbc:postgresql://host/db?user=me&password=hush", True),
        ("https://catalog.example.com/?apikey=hush", True),
        ("https://catalog.example.com:8181/api@v1", False),
        ("file:///lakes/my secrets", False),
    ],
)
def test_a_password_in_an_address_is_found(address: str, *, expected: bool) -> None:
    """A property with a harmless name hides no value, but secrets in its address are hidden."""
    assert expected == is_secret("uri", address)


def test_a_warehouse_of_its_own_wins() -> None:
    """Some catalogs name their warehouse instead of a folder."""
    lake = LakeSettings("s3://bucket/lake", {"type": "rest", "uri": "http://c", "warehouse": "main"})
    assert lake.spark_properties()["warehouse"] == "main"
    assert lake.pyiceberg_properties()["warehouse"] == "main"


REST: Final = {"type": "rest", "uri": "https://catalog"}


@pytest.mark.parametrize(
    ("path", "catalog", "setting"),
    [
        ("s3://bucket/lake", {}, "catalog"),  # SQLite needs a folder
        ("s4://b/l", REST, "path"),
        ("s3://b/l", {**REST, "warehouse": "s4://b/l"}, "catalog.warehouse"),
        ("s3://b/l", {"type": "hadoop"}, "catalog.type"),
        ("s3://b/l", {"uri": "https://catalog"}, "catalog.type"),
        ("s3://b/l", {"type": "rest"}, "catalog.uri"),
        ("s3://b/l", {"type": "rest", "uri": "catalog:8181"}, "catalog.uri"),
        ("s3://b/l", {"type": "hive", "uri": "https://catalog"}, "catalog.uri"),
        ("s3://b/l", {"type": "sql", "uri": "mysql://h/d"}, "catalog.uri"),  # no driver
        ("s3://b/l", {"type": "sql", "uri": "postgresql+asyncpg://h/d"}, "catalog.uri"),
        ("s3://b/l", {"type": "sql", "uri": "sqlite:///catalog.db"}, "catalog.uri"),  # relative to nothing
        ("s3://b/l", {"type": "sql"}, "catalog.uri"),
        ("s3://b/l", {"type": "sql", "uri": "postgresql://me@h/d", "user": "you"}, "catalog.uri"),
        ("s3://b/l", {**REST, "s3.endpoint": "localhost:9000"}, "catalog.s3.endpoint"),
        ("s3://b/l", {**REST, "s3.access-key-id": "me"}, "catalog.s3.secret-access-key"),
    ],
)
def test_what_cannot_work_is_refused_by_name(path: str, catalog: dict[str, str], setting: str) -> None:
    """The error names the setting, before anything is reached."""
    with pytest.raises(SettingError) as caught:
        LakeSettings(path, catalog)
    assert f"lake.{setting}" == caught.value.setting


def test_only_local_lakes_have_a_folder(tmp_path: Path) -> None:
    """A path, a home folder and a file URI are local; an object store is not."""
    assert local_folder(str(tmp_path)) == tmp_path
    assert local_folder(tmp_path.as_uri()) == tmp_path
    assert local_folder("~/lake") == Path.home() / "lake"
    assert local_folder("gs://bucket/lake") is None


@pytest.mark.parametrize(
    ("catalog", "expected"),
    [
        ({}, "/data/lake/catalog.db"),
        ({"type": "sql", "uri": "sqlite:////data/c.db?timeout=5"}, "/data/c.db"),
        ({"type": "sql", "uri": "postgresql+psycopg2://me@db/lake"}, None),
        ({"type": "rest", "uri": "https://catalog"}, None),
        ({"type": "glue"}, None),
    ],
)
def test_only_a_sqlite_catalog_is_a_file(catalog: dict[str, str], expected: str | None) -> None:
    """A lake is seen to exist, or not, without making its file."""
    path = LakeSettings("/data/lake", catalog).catalog_file
    assert expected == (str(path) if path is not None else None)
