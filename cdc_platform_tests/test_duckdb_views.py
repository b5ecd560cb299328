"""DuckDB's views of a cut: their names, and how DuckDB reaches the files in an object store."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.request import Request, urlopen

import boto3
import duckdb
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

from cdc_platform.duckdb_views import connect, load_extensions, log_in, name_views, register
from cdc_platform.errors import LibraryMissing
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import head
from cdc_platform.lake.state.cuts import Cut
from cdc_platform.model.base.names import lake_table_name
from cdc_platform.read import TablesAtCut
from cdc_platform_tests.support.pipelines import START

OpenInStore = Callable[..., duckdb.DuckDBPyConnection]
REGION = {"s3.region": "us-east-1"}
KEYS = {"s3.access-key-id": "me", "s3.secret-access-key": "it's secret"}
ROLE = "arn:aws:iam::123456789012:role/reader"


def test_an_extension_for_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB loads only extensions of its own version."""
    monkeypatch.setattr(duckdb, "__version__", "0.0.1")
    with pytest.raises(LibraryMissing, match=r"`avro` is not for DuckDB 0\.0\.1: pip install"):
        load_extensions(duckdb.connect())


def numbered_tables(lake: Lake, names: Sequence[str]) -> TablesAtCut:
    """Return tables of one row each, whose value is the number of the table."""
    snapshots = {}
    for number, name in enumerate(names):
        rows = pa.table({"id": [number]})
        table = lake.catalog.create_table(f"bank.{lake_table_name(name)}", rows.schema)
        table.append(rows)
        snapshot = head(table)
        assert snapshot is not None
        snapshots[name] = snapshot.snapshot_id
    return TablesAtCut(lake, Cut(1, START, 1, snapshots, START))


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Address of an S3 server that has a bucket, and assumes roles."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    urlopen(Request(f"{endpoint}/a-bucket", method="PUT")).close()  # noqa: S310  ours, on loopback
    yield endpoint
    server.stop()


@dataclass(frozen=True)
class Stored:
    """A cut of a lake in the server, and what its catalog is called by."""

    cut: Cut
    path: str
    catalog: dict[str, str]


@pytest.fixture(scope="module")
def written(store: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Stored]:
    """Function that returns a cut of the server, written once for each name of its kind of store."""

    @cache
    def write(scheme: str) -> Stored:
        uri = f"sqlite:///{tmp_path_factory.mktemp(scheme)}/c.db"
        catalog = {"type": "sql", "uri": uri, "s3.endpoint": store, **REGION}
        path = f"{scheme}://a-bucket/{scheme}/a lake"
        tables = numbered_tables(Lake(LakeSettings(path, {**catalog, **KEYS}), "bank"), ["zero", "one"])
        publish_objects(store)
        return Stored(tables.cut, path, catalog)

    return write


def publish_objects(store: str) -> None:
    """Let readers without keys read all objects of the bucket."""
    login = {"aws_access_key_id": "me", "aws_secret_access_key": "it's secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=store, **login)
    for entry in client.list_objects_v2(Bucket="a-bucket")["Contents"]:
        client.put_object_acl(Bucket="a-bucket", Key=entry["Key"], ACL="public-read")


@pytest.fixture
def one_in_store(
    store: str, written: Callable[[str], Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenInStore:
    """Open a cut of the server with DuckDB, which finds keys in the environment and in a profile."""
    profile = "aws_access_key_id = %s\naws_secret_access_key = it's secret\n"
    (tmp_path / "credentials").write_text(f"[other]\n{profile % 'other'}")
    environment = {
        "AWS_ACCESS_KEY_ID": "surroundings",
        "AWS_SECRET_ACCESS_KEY": "it's secret",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_ENDPOINT_URL_STS": store,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def opened(properties: dict[str, str], scheme: str = "s3") -> duckdb.DuckDBPyConnection:
        stored = written(scheme)
        lake = Lake(LakeSettings(stored.path, {**stored.catalog, **properties}), "bank", is_reader=True)
        return TablesAtCut(lake, stored.cut).duckdb()

    return opened


def key_of_secret(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the beginning of the key by which a connection reads, empty without one."""
    secrets = connection.sql("SELECT secret_string FROM duckdb_secrets()").fetchall()
    keys = {key for (text,) in secrets for key in re.findall(r";key_id=(\w{,5})", text)}
    return ", ".join(keys)


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({}, "surro"),
        (KEYS, "me"),
        ({"client.access-key-id": "me", "client.secret-access-key": "it's secret"}, "me"),
        ({**KEYS, "client.access-key-id": "you", "s3.profile-name": "other", "s3.signer": ""}, "me"),
        ({"s3.anonymous": "true"}, ""),
        ({"s3.anonymous": "false"}, "surro"),
        ({"s3.profile-name": "other"}, "other"),
        ({"client.profile-name": "other"}, "other"),
        ({"s3.role-arn": ROLE, "s3.role-session-name": "reading"}, "ASIA"),
        ({"client.role-arn": ROLE}, "ASIA"),
        # A name alone assumes no role.
        ({"client.role-session-name": "reading"}, "surro"),
        # A server that signs requests is asked by programs that have no keys.
        ({**KEYS, "s3.remote-signing-enabled": "true"}, "me"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else value,
)
def test_duckdb_scans_tables_in_an_object_store(
    one_in_store: OpenInStore, properties: dict[str, str], key: str
) -> None:
    """It reads where the files lie, and logs in as pyiceberg does."""
    connection = one_in_store(properties)
    assert "ICEBERG_SCAN" in connection.sql("EXPLAIN SELECT id FROM one").fetchall()[0][1]
    assert connection.sql("SELECT id FROM one").fetchall() == [(1,)]
    assert key_of_secret(connection).startswith(key)
    assert bool(key) == bool(key_of_secret(connection))


def test_duckdb_scans_tables_under_hadoops_names_of_s3(one_in_store: OpenInStore) -> None:
    """`s3a` and `s3n` are other names of the same store."""
    connection = one_in_store(KEYS, "s3a")
    assert "ICEBERG_SCAN" in connection.sql("EXPLAIN SELECT id FROM one").fetchall()[0][1]
    assert connection.sql("SELECT id FROM one").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"s3.signer": "S3V4RestSigner"}, "DuckDB has no equivalent of the catalog's property `s3.signer`"),
        ({"s3.profile-name": "missing"}, "DuckDB cannot log in: .*'missing'"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_tables_that_duckdb_cannot_scan_are_read_at_once(
    one_in_store: OpenInStore, caplog: pytest.LogCaptureFixture, properties: dict[str, str], reason: str
) -> None:
    """A warning says how much is read into memory, and why."""
    connection = one_in_store(properties)
    assert connection.sql("SELECT id FROM one").fetchall() == [(1,)]
    assert re.search(f"Table `one` .* is read into memory: {reason}", caplog.text)


def test_duckdb_repeats_no_key() -> None:
    """Neither its errors nor its log of statements have the keys by which it logs in."""
    connection = connect()
    load_extensions(connection)
    connection.execute("CALL enable_logging('QueryLog')")
    keys = {"s3.access-key-id": "me", "s3.secret-access-key": "it's\0secret", "s3.session-token": "secret"}
    obstacle = log_in(connection, "s3://a-bucket/one", {**REGION, **keys})
    logged = connection.sql("SELECT message FROM duckdb_logs").fetchall()
    assert "CREATE OR REPLACE SECRET" in str(logged)
    assert "secret" not in f"{obstacle}{logged}"


def test_the_address_of_a_store_shows_no_password() -> None:
    """Anyone who runs SQL on a cut may list the secrets, and DuckDB hides those of its own options only."""
    connection = connect()
    load_extensions(connection)
    log_in(connection, "s3://a-bucket/one", {**REGION, **KEYS, "s3.endpoint": "https://me:hush@store:9000/x"})
    ((listed,),) = connection.sql("SELECT secret_string FROM duckdb_secrets()").fetchall()
    assert ";endpoint=store:9000/x;" in listed
    assert "hush" not in listed


def test_duckdb_has_tables_under_the_names_of_the_source(tmp_path: Path) -> None:
    """Quoted, a name of any characters is found; that of a table in a named schema needs no quotes."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    names = ("shop.orders", "order", "my table")
    connection = numbered_tables(lake, names).duckdb()
    for number, name in enumerate(names):
        assert [(number,)] == connection.sql(f'SELECT id FROM "{name}"').fetchall()
    assert connection.sql("SELECT id FROM shop.orders").fetchall() == [(0,)]


def test_duckdb_never_shows_one_table_under_the_name_of_another(tmp_path: Path) -> None:
    """It ignores case, so tables whose names differ in nothing else have only their names in the lake."""
    names = ("shop.Users", "shop.users", "Shop.orders", "shop.orders", "my Orders", "MY orders", "É t", "é t")
    tables = numbered_tables(Lake(LakeSettings(str(tmp_path)), "bank"), names)
    connection = tables.duckdb()
    for number, name in enumerate(names):
        assert [(number,)] == connection.sql(f"SELECT id FROM {lake_table_name(name)}").fetchall()
        assert tables.arrow(name) == tables.arrow(lake_table_name(name))
    for name in ("shop.users", '"shop.users"', "shop.orders", '"Shop.orders"', '"my orders"'):
        with pytest.raises(duckdb.CatalogException, match="does not exist"):
            connection.sql(f"FROM {name}")
    assert connection.sql('SELECT id FROM "É t"').fetchall() == [(6,)]
    # Another set of tables changes no name.
    some = tables.duckdb(tables=[lake_table_name("shop.Users")])
    assert [(lake_table_name("shop.Users"),)] == some.sql("SHOW TABLES").fetchall()


@pytest.mark.parametrize("schema", ["temp", "system", "Memory", "main", "information_schema", "pg_catalog"])
def test_a_table_may_be_in_a_schema_of_a_name_that_duckdb_has(tmp_path: Path, schema: str) -> None:
    """Such a table needs quotes, and hides no other one; all others are found as always."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    names = (f"{schema}.orders", "orders", "shop.items", f"{schema}.", ".orders")
    connection = numbered_tables(lake, names).duckdb()
    for number, name in enumerate(names):
        assert [(number,)] == connection.sql(f'SELECT id FROM "{name}"').fetchall()
    assert connection.sql("SELECT id FROM shop.items").fetchall() == [(2,)]


def test_a_database_may_have_the_name_of_a_schema(tmp_path: Path) -> None:
    """A connection of the user's to `shop.db` gets the tables of the schema `shop`, too."""
    tables = numbered_tables(Lake(LakeSettings(str(tmp_path)), "bank"), ["shop.orders"])
    with tables.duckdb(duckdb.connect(str(tmp_path / "shop.db"))) as connection:
        assert connection.sql('SELECT id FROM "shop.orders"').fetchall() == [(0,)]


def test_tables_in_memory_have_the_same_names() -> None:
    """What DuckDB cannot scan itself is found in its schema without quotes, and under the lake's name."""
    connection = connect()
    names = name_views(connection, ["shop.orders"])["shop.orders"]
    register(connection, names, pa.table({"id": [7]}))
    for name in ("shop.orders", '"shop.orders"', lake_table_name("shop.orders")):
        assert connection.sql(f"SELECT id FROM {name}").fetchall() == [(7,)]


def test_a_table_may_be_larger_than_memory(tmp_path: Path) -> None:
    """A query of a table of 240 MB takes less than half of that."""
    lake = Lake(LakeSettings(str(tmp_path)), "bank")
    schema = pa.schema([("id", pa.int64()), ("note", pa.string())])
    table = lake.catalog.create_table("bank.accounts", schema)
    # The files have equal texts: making them takes longer than reading them all.
    texts = [os.urandom(500).hex() for _ in range(40_000)]
    for first in range(0, 240_000, 40_000):
        table.append(pa.table({"id": range(first, first + 40_000), "note": texts}, schema))
    snapshot = head(table)
    assert snapshot is not None
    connection = TablesAtCut(lake, Cut(1, START, 1, {"accounts": snapshot.snapshot_id}, START)).duckdb()
    connection.execute("SET memory_limit = '110MB'; SET threads = 1; SET max_temp_directory_size = '0B'")
    query = "SELECT count(*), sum(id), sum(length(note)), count(DISTINCT left(note, 2)) FROM accounts"
    assert connection.sql(query).fetchall() == [(240_000, 28_799_880_000, 240_000_000, 256)]
