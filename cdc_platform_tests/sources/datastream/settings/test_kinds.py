"""Sources of events: by setting, by read method, by metadata, and never by default."""

from typing import Any

import pytest

from cdc_platform.errors import RecordUnreadable
from cdc_platform.sources.datastream.settings.kinds import is_backfill, source_kind


@pytest.mark.parametrize(
    ("read_method", "metadata", "declared", "expected"),
    [
        ("mysql-cdc-binlog", {}, None, "mysql"),
        ("mysql-backfill-fulldump", {}, None, "mysql"),
        ("oracle-supplementation", {}, None, "oracle"),
        ("oracle_dump", {}, None, "oracle"),  # 2020
        ("postgres-cdc-wal", {}, None, "postgresql"),  # the documentation
        ("postgresql-cdc", {}, None, "postgresql"),  # the files
        ("sqlserver-cdc-logbased", {}, None, "sqlserver"),
        ("salesforce-backfill", {}, None, "salesforce"),
        ("cdc", {"collection": "c"}, None, "mongodb"),
        ("backfill", {}, None, "mongodb"),
        ("cdc", {"log_file": "f.1", "log_position": 4}, None, "mysql"),  # metadata count before a single name
        ("", {"scn": 1}, None, "oracle"),
        ("newdb-cdc", {"lsn": "16/B3"}, None, "postgresql"),
        ("", {"lsn": "00000025:00000728:0003"}, None, "sqlserver"),
        ("newdb-cdc", {"scn": 1}, "salesforce", "salesforce"),  # a declared kind is trusted
    ],
)
def test_source_is_recognised(
    read_method: str, metadata: dict[str, Any], declared: str | None, expected: str
) -> None:
    """The setting comes first, then the read method with its aliases, then the shape of the metadata."""
    assert expected == source_kind(read_method, metadata, declared)


@pytest.mark.parametrize("read_method", ["spanner-cdc", "", "workday-backfill", "cdc2"])
def test_unknown_source_is_refused(read_method: str) -> None:
    """There is no source that is taken when nothing shows one."""
    with pytest.raises(RecordUnreadable, match=r"set `source` to one of .*Read method"):
        source_kind(read_method, {"table": "t"})


@pytest.mark.parametrize(
    ("read_method", "expected"),
    [
        ("mysql-backfill-incremental", True),
        ("oracle_dump", True),
        ("backfill", True),
        ("mysql-cdc-binlog", False),
        ("oracle-supplementation", False),
    ],
)
def test_backfill_is_recognised_by_the_read_method(read_method: str, expected: bool) -> None:
    """The read method alone distinguishes backfills and dumps from captured changes."""
    assert expected == is_backfill(read_method)
