"""Scans of the lake's tables that this process makes."""

from typing import Any

import pytest

from cdc_platform.lake.manifests.stored_table import StoredScan, StoredTable


def watch_scans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """Return the tables and filters of all scans from now on; a scan without a filter has None."""
    scans, scan = list[tuple[str, object]](), StoredTable.scan

    def scan_and_note(table: StoredTable, *arguments: Any, **options: Any) -> StoredScan:
        scans.append((table.name()[-1], next(iter(arguments), options.get("row_filter"))))
        return scan(table, *arguments, **options)

    monkeypatch.setattr(StoredTable, "scan", scan_and_note)
    return scans
