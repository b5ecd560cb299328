"""Temporary credentials from a REST catalog, which expire while a process reads and writes."""

import pickle
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_platform.errors import LakeUnreachable
from cdc_platform.lake.catalog import vended_files
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.vended_files import VendedFiles
from cdc_platform.lake.commits.data_files import DATA_FILES, DataFileWriter, data_files_of
from cdc_platform.lake.commits.writes import CycleStep, append_cycle, append_files
from cdc_platform.model.base.stored_names import QUARANTINE
from cdc_platform_tests.servers.credential_vending import LOGIN, VendingLake, vending_lake

pytestmark = pytest.mark.integration


@pytest.fixture
def vending(tmp_path: Path) -> Iterator[VendingLake]:
    """A lake whose catalog vends credentials."""
    with vending_lake(tmp_path) as vending:
        yield vending


@pytest.fixture
def lake(vending: VendingLake) -> Lake:
    """The lake of a pipeline."""
    return Lake(vending.settings, "p")


def rows_of(lake: Lake) -> pa.Table:
    """Return rows of quarantine in the first cycle."""
    schema = lake.system_table(QUARANTINE).schema().as_arrow()
    return pa.Table.from_pylist([{"cycle": 1, "record": "a"}], schema)


def test_credentials_that_expire_are_renewed_before(lake: Lake, vending: VendingLake) -> None:
    """A table that was loaded before its credentials expired is read and written, also by a task."""
    rows, vending.vending.life_s = rows_of(lake), 0.0
    table = lake.system_table(QUARANTINE)
    writer: DataFileWriter = pickle.loads(pickle.dumps(DataFileWriter.of(table)))  # noqa: S301  just written
    vending.vending.expire()
    written = pa.Table.from_batches(writer(rows.to_batches()), DATA_FILES)
    append_files(data_files_of(written), table, CycleStep(0, 1), {})
    vending.vending.expire()
    assert table.scan().to_arrow()["record"].to_pylist() == ["a"]


@pytest.mark.parametrize("states_expiry", [True, False])
def test_credentials_that_expire_earlier_are_worth_a_retry(
    lake: Lake, vending: VendingLake, states_expiry: bool
) -> None:
    """The next attempt loads the table, and so gets others."""
    vending.vending.states_expiry = states_expiry
    rows, table = rows_of(lake), lake.system_table(QUARANTINE)
    vending.vending.expire()
    with pytest.raises(LakeUnreachable, match="have expired"), reaching(lake.settings):
        append_cycle(rows, table, CycleStep(0, 1), {})
    append_cycle(rows, lake.system_table(QUARANTINE), CycleStep(0, 1), {})
    table = lake.system_table(QUARANTINE)
    vending.vending.expire()
    with pytest.raises(LakeUnreachable, match="have expired"), reaching(lake.settings):
        table.scan().to_arrow()
    with pytest.raises(LakeUnreachable, match="have expired"), reaching(lake.settings):
        table.io.new_input(table.metadata_location).exists()


def test_a_catalog_that_does_not_answer_keeps_no_file_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former credentials serve until they expire, and the next attempt to renew them waits a while."""
    monkeypatch.setattr(vended_files, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        catalog = {"uri": f"http://127.0.0.1:{silent.getsockname()[1]}", "warehouse": "w"}
        expiry = {"s3.session-token-expires-at-ms": str(int(time.time() * 1000))}
        files = VendedFiles({**LOGIN, "s3.region": "r", **expiry}, catalog, ("bank", "accounts"))
        for _ in range(3):
            files.fs_by_scheme("s3", "bucket")
        silent.accept()
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize("expiry", ["", "never", "2026-01-01T00:00:00Z"])
def test_an_expiry_that_is_no_number_is_none(expiry: str) -> None:
    """The credentials are renewed as if their catalog did not state when they expire."""
    # Without a region, the client asks the metadata server of a cloud for it, and waits for seconds.
    properties = {**LOGIN, "s3.region": "r", "s3.session-token-expires-at-ms": expiry}
    files = VendedFiles(properties, {}, ("bank", "accounts"))
    files.fs_by_scheme("s3", "bucket")
