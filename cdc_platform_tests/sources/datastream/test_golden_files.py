"""Files that Datastream wrote, against what they say and against Avro's own library."""

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest

from cdc_platform.model.base.timestamps import from_datetime, to_rfc3339
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform_tests.support.datastream.envelopes import Envelope, read_events

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "datastream"
EXPECTED: Final[Mapping[str, Any]] = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
AVRO: Final = [name for name in EXPECTED if name.endswith(".avro")]


def envelopes(name: str) -> list[Envelope]:
    """Return the events of a file, none of which is faulty."""
    read = list(read_events((GOLDEN / name).read_bytes(), Decoding()))
    assert all(isinstance(each, Envelope) for each in read), read
    return [each for each in read if isinstance(each, Envelope)]


def canonical(value: Any) -> Any:
    """Return a value of Avro's library as the change log has it."""
    if isinstance(value, datetime):
        return to_rfc3339(from_datetime(value))
    return format(value, "f") if isinstance(value, Decimal) else value


def test_every_file_is_expected() -> None:
    """No file lies there that nothing is said about."""
    files = {path for folder in ("json", "mysql", "oracle") for path in (GOLDEN / folder).rglob("*.*")}
    assert set(EXPECTED) == {path.relative_to(GOLDEN).as_posix() for path in files}


@pytest.mark.parametrize("name", EXPECTED)
def test_files_state_what_they_stated(name: str) -> None:
    """Columns, types, values and identity of all events are those that were read once and looked at."""
    envelopes_read = envelopes(name)
    assert EXPECTED[name]["columns"] == {column: kind.text for column, kind in envelopes_read[0].columns}
    assert EXPECTED[name]["events"] == [
        {"uuid": each.uuid, "read_method": each.read_method, "values": each.values} for each in envelopes_read
    ]
    assert list(range(len(envelopes_read))) == [each.position for each in envelopes_read]


@pytest.mark.parametrize("name", AVRO)
def test_avro_is_read_as_its_library_reads_it(name: str) -> None:
    """Every part of every event is what Avro's library says, in the change log's spelling."""
    with (GOLDEN / name).open("rb") as file:
        records: list[Any] = list(fastavro.reader(file))
    for record, envelope in zip(records, envelopes(name), strict=True):
        assert {column: canonical(value) for column, value in record["payload"].items()} == envelope.values
        assert record["source_metadata"] == envelope.source_metadata
        assert tuple(record["sort_keys"]) == envelope.sort_keys
        assert from_datetime(record["read_timestamp"]) == envelope.read_timestamp_micros
        assert from_datetime(record["source_timestamp"]) == envelope.source_timestamp_micros
        envelope_fields = (envelope.uuid, envelope.object_name, envelope.stream_name, envelope.schema_key)
        assert (
            tuple(record[part] for part in ("uuid", "object", "stream_name", "schema_key")) == envelope_fields
        )
