"""Golden streams are consistent in themselves: what they expect follows from what they hold."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from cdc_platform.model.base.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.base.timestamps import from_datetime, from_rfc3339, to_rfc3339
from cdc_platform.model.stream.lineage import watermark_micros
from cdc_platform.model.stream.ordering_key import record_order
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.checks.lineage_checks import find_violations
from cdc_platform_tests.golden_streams import FOLDER, GoldenStream, golden_streams, raw_table

STREAMS = golden_streams()
COUNTED = (RecordKind.DATA_CHANGE, RecordKind.HEARTBEAT, RecordKind.CHILD_PARTITIONS)
every_stream = pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)


def apply_stream(stream: GoldenStream) -> dict[str, list[Mapping[str, Any]]]:
    """Return the tables that the log gives when it is applied change by change."""
    tables: dict[str, dict[str, dict[str, Any]]] = {table.name: {} for table in stream.schemas}
    for change in stream.log:
        rows, keys, values = tables[change["table_name"]], change["keys"], json.loads(change["new_values"])
        if change["change_kind"] == "delete":
            del rows[keys]
        elif change["change_kind"] == "insert":
            assert keys not in rows
            rows[keys] = {**json.loads(keys), **values}
        else:
            rows[keys].update(values)
    return {name: list(rows.values()) for name, rows in tables.items()}


def test_every_folder_is_a_stream() -> None:
    """No folder is left out because a file of it is missing."""
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == {stream.name for stream in STREAMS}


@every_stream
def test_readme_has_three_lines(stream: GoldenStream) -> None:
    """Each stream says in three lines what it is about."""
    assert len((FOLDER / stream.name / "README.md").read_text(encoding="utf-8").splitlines()) == 3


@every_stream
def test_tables_follow_from_the_log(stream: GoldenStream) -> None:
    """Applying the log gives exactly the rows of the tables."""
    by_text = {name: sorted(rows, key=str) for name, rows in apply_stream(stream).items()}
    assert {name: sorted(rows, key=str) for name, rows in stream.source_tables.items()} == by_text


@every_stream
def test_log_and_quarantine_hold_every_record_once(stream: GoldenStream) -> None:
    """Each mod of each distinct record is in the log, or its record is in quarantine."""
    mods: dict[str, int] = {}
    for row in stream.rows:
        if row["kind"] == RecordKind.DATA_CHANGE:
            record_id = f"{row['server_transaction_id']}/{row['record_sequence']}"
            mods[record_id] = len(row["mods"])
            assert record_order(row["record_sequence"]) == row["record_order"]
    expected = Counter({name: n for name, n in mods.items() if name not in quarantined(stream)})
    assert expected == Counter(change["record_id"] for change in stream.log)
    assert quarantined(stream) <= set(mods)


def quarantined(stream: GoldenStream) -> set[str]:
    """Return the identities of the records in quarantine."""
    return {row["record_id"] for row in stream.quarantine}


@every_stream
def test_lineage_is_sound_and_reaches_the_last_commit(stream: GoldenStream) -> None:
    """The windows of the stream obey the rules of partitions and read everything that the log holds."""
    for lineage in stream.lineages:
        assert find_violations(lineage) == []
    last = max(from_rfc3339(change["commit_timestamp"]) for change in stream.log)
    assert last <= (watermark_micros(stream.lineages[-1]) or 0)


@every_stream
def test_windows_report_what_they_hold(stream: GoldenStream) -> None:
    """The counts of a window's row are those of the rows of its partition in its cycle."""
    kinds = Counter((row["cycle"], row["partition_token"], row["kind"]) for row in stream.rows)
    for row in stream.rows:
        if row["read_window"] is not None:
            for kind in COUNTED:
                expected = kinds[row["cycle"], row["partition_token"], kind]
                assert expected == row["read_window"][f"{kind}_records"]


@every_stream
def test_rows_have_the_schema_of_raw_change_records(stream: GoldenStream) -> None:
    """The rows survive a round trip through Arrow, and timestamps the one through text."""
    assert list(stream.rows) == raw_table(stream.rows).to_pylist()
    assert all(set(RAW_CHANGE_RECORDS.names) == set(row) for row in stream.rows)
    for change in stream.log:
        text = change["commit_timestamp"]
        assert text == to_rfc3339(from_rfc3339(text))
    assert from_datetime(stream.rows[0]["record_timestamp"]) == stream.start_micros
