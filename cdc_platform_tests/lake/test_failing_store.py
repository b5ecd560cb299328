"""A lake in an object store: commits need few requests; when the store fails, they are there once.

A file that the store has lost is named.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

from cdc_platform.errors import LakeDamaged, LakeUnreachable
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.commits.commits import read_mark
from cdc_platform.lake.commits.writes import CycleStep, append_cycle
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.base.stored_names import RAW
from cdc_platform_tests.support.proxies.http_proxy import (
    Choice,
    Fault,
    HttpProxy,
    Request,
    http_proxy,
    seldom,
)

BUCKET: Final = "lakes"
LOGIN: Final = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
FAULTS: Final = (
    *(Fault.REFUSE_500, Fault.REFUSE_503, Fault.CUT),
    *(Fault.LOSE_ANSWER, Fault.ANSWER_500),
)
CYCLES: Final = 3


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The address of an object store with a bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    boto3.client("s3", endpoint_url=address, **LOGIN).create_bucket(Bucket=BUCKET)
    yield address
    server.stop()


@pytest.fixture
def proxy(store: str) -> Iterator[HttpProxy]:
    """A proxy before the object store, which fails nothing at first."""
    with http_proxy(store) as proxy:
        yield proxy


@pytest.fixture
def lake(proxy: HttpProxy, tmp_path: Path) -> Lake:
    """A lake in the bucket, whose catalog is a file."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "s3.endpoint": proxy.address,
        "s3.region": LOGIN["region_name"],
        "s3.access-key-id": LOGIN["aws_access_key_id"],
        "s3.secret-access-key": LOGIN["aws_secret_access_key"],
    }
    lake = Lake(LakeSettings(f"s3://{BUCKET}/{tmp_path.name}", catalog), "p")
    _ = lake.catalog
    return lake


def commit_next(lake: Lake) -> None:
    """Commit the cycle after the newest one."""
    table = lake.system_table(RAW)
    before = read_mark(table).cycle
    row = pa.Table.from_pylist([{"cycle": before + 1}], RAW_CHANGE_RECORDS)
    append_cycle(row, table, CycleStep(before, before + 1), {})


def test_a_commit_needs_few_requests(lake: Lake, proxy: HttpProxy) -> None:
    """Each file is written by one request, and no manifest is fetched a second time."""
    commit_next(lake)
    requests = list[Request]()
    proxy.choose = requests.append
    commit_next(lake)
    # It reads the metadata and the list of manifests of the former commit, and checks the sizes of the first
    # two files that it writes.
    assert Counter(request.method for request in requests) == {"PUT": 4, "HEAD": 4, "GET": 2}
    for _ in range(2):
        requests.clear()
        assert lake.system_table(RAW).scan().count() == 2
    assert [request.path for request in requests if request.path.endswith(".avro")] == []


def test_commits_are_there_once(lake: Lake, proxy: HttpProxy) -> None:
    """Requests that are refused, cut short, or done without an answer are tried again."""
    proxy.choose = seldom(7, 0.15, FAULTS)
    while read_mark(lake.system_table(RAW)).cycle < CYCLES:
        with suppress(LakeUnreachable), reaching(lake.settings):
            commit_next(lake)
    proxy.choose = lambda _request: None
    assert proxy.counts.total() > CYCLES
    assert sorted(lake.system_table(RAW).scan().to_arrow()["cycle"].to_pylist()) == [*range(1, CYCLES + 1)]


@pytest.mark.parametrize("file", [".parquet", "-m0.avro"])
def test_a_lost_write_is_noticed_before_the_commit(lake: Lake, proxy: HttpProxy, file: str) -> None:
    """A store that says that it has written what it has not fails the cycle, and the next one is whole."""
    proxy.choose = losing(file)
    with pytest.raises(LakeUnreachable, match=f"was just written to it: .*{file}"), reaching(lake.settings):
        commit_next(lake)
    commit_next(lake)
    assert lake.system_table(RAW).scan().to_arrow()["cycle"].to_pylist() == [1]


def test_lost_metadata_are_named(lake: Lake, proxy: HttpProxy, tmp_path: Path) -> None:
    """The catalog names a file that the store does not have: no reader takes an older one for it.

    Where somebody puts the file before it back, the cycle is made again.
    """
    commit_next(lake)
    proxy.choose = losing(".metadata.json")
    commit_next(lake)
    with pytest.raises(LakeDamaged, match=rf"s3://{BUCKET}/.*\.metadata\.json"):
        lake.system_table(RAW)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as catalog, catalog:
        catalog.execute(
            "UPDATE iceberg_tables SET metadata_location = previous_metadata_location "
            f"WHERE table_namespace = 'p__cdc' AND table_name = '{RAW}'"
        )
    commit_next(lake)
    assert lake.system_table(RAW).scan().to_arrow()["cycle"].to_pylist() == [2, 1]


def test_a_lost_list_of_manifests_is_made_again(lake: Lake, proxy: HttpProxy) -> None:
    """It is the first file that Iceberg reads of a commit, so its commit is taken back as a whole."""
    proxy.choose = losing("/snap-")
    commit_next(lake)
    assert revert_lost_commits(lake) == (f"p__cdc.{RAW}",)
    commit_next(lake)
    assert lake.system_table(RAW).scan().to_arrow()["cycle"].to_pylist() == [1]


def losing(part: str) -> Choice:
    """Return a choice that loses the next file whose path has a part, and says that it was written."""
    remaining = [Fault.LOSE_WRITE]

    def choose(request: Request) -> Fault | None:
        is_meant = part in request.path and request.method == "PUT"
        return remaining.pop() if is_meant and remaining else None

    return choose
