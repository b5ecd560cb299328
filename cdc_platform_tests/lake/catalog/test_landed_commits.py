"""Commits that a catalog reports as conflicts although it has made them: a gateway repeated the request."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from cdc_platform.lake.catalog.catalogs import open_catalog
from cdc_platform.lake.catalog.lake_settings import COMPARE_AND_SET, FORMAT_PROPERTY, LakeSettings
from cdc_platform_tests.servers.rest_catalog import rest_catalog
from cdc_platform_tests.support.proxies.http_proxy import Fault, every, http_proxy

pytestmark = pytest.mark.integration

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def test_a_commit_that_has_landed_is_no_conflict(tmp_path: Path) -> None:
    """Its files stay, its rows are there once, and a real conflict still is one, without data files."""
    with rest_catalog(tmp_path) as uri, http_proxy(uri) as proxy:
        place = (tmp_path / "warehouse").as_uri()
        settings = LakeSettings(
            str(tmp_path / "lake"), {"type": "rest", "uri": proxy.address, "warehouse": place}
        )
        catalog = open_catalog(settings)
        catalog.create_namespace("bank")
        table = catalog.create_table(
            "bank.accounts", ROWS.schema, properties={**COMPARE_AND_SET, FORMAT_PROPERTY: "1"}
        )
        outdated = catalog.load_table("bank.accounts")
        proxy.choose = every(1, "/tables/", (Fault.ANSWER_409,))
        table.append(ROWS)
        table.overwrite(ROWS.slice(1))
        proxy.choose = lambda _request: None

        assert dict(proxy.counts) == {Fault.ANSWER_409: 2}
        assert ROWS.slice(1) == catalog.load_table("bank.accounts").scan().to_arrow().cast(ROWS.schema)
        files = {*tmp_path.rglob("*.parquet")}
        with pytest.raises(CommitFailedException):
            outdated.append(ROWS)
        assert files == {*tmp_path.rglob("*.parquet")}
        assert len(catalog.load_table("bank.accounts").scan().to_arrow()) == 1
