"""Unreadable parts of a file are reported, and readable ones are read."""

import gzip
import json
from io import BytesIO
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources import text_files
from cdc_platform.sources.datastream.files import lines as lines_module
from cdc_platform.sources.datastream.files.decoding import Decoding
from cdc_platform.sources.datastream.files.lines import read_blocks
from cdc_platform.sources.datastream.settings.bounds import Bounds
from cdc_platform.sources.text_files import CHUNK_BYTES
from cdc_platform_tests.support.datastream.envelopes import Envelope, read_events
from cdc_platform_tests.unified_types import avro_file, event_schema, json_line

SCHEMA = event_schema([("id", "long"), ("note", "string")])
ROWS = 40
AVRO = avro_file(SCHEMA, [{"id": number, "note": "x" * 20} for number in range(ROWS)], block_bytes=2000)
LINES = [json_line(number, {"id": str(number)}) for number in range(ROWS)]
JSON = "\n".join(LINES).encode()


def read(data: bytes) -> tuple[list[Envelope], list[FaultyEvent]]:
    """Return the events of a file, and those that are faulty."""
    events = list(read_events(data, Decoding()))
    good = [each for each in events if isinstance(each, Envelope)]
    return good, [each for each in events if isinstance(each, FaultyEvent)]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_codecs_of_the_standard_library_are_read(codec: str) -> None:
    """Compressed Avro files give the same events."""
    rows = [{"id": number, "note": "x"} for number in range(ROWS)]
    good, faulty = read(avro_file(SCHEMA, rows, codec))
    assert rows == [event.values for event in good]
    assert not faulty


def test_a_cut_file_gives_every_event_before_the_cut() -> None:
    """Wherever an Avro file ends too early, its events are a prefix of the whole, and the end is reported."""
    whole, _ = read(AVRO)
    counts = []
    for length in range(1, len(AVRO), 97):
        good, faulty = read(AVRO[:length])
        assert whole[: len(good)] == good
        counts.append(len(good))
        # A cut between two blocks leaves a whole file of fewer events: no reader of Avro can detect it.
        assert [event.position for event in faulty] == [None]
    assert sorted(counts) == counts
    assert counts[-1] >= ROWS - 2


def test_the_reason_says_how_far_a_file_was_read() -> None:
    """The faulty event of a truncated file states what is missing, and how many events were read."""
    good, faulty = read(AVRO[: len(AVRO) // 2])
    assert "The Avro file is damaged: it ends within a block" in faulty[0].reason
    assert {"events_read": len(good)} == json.loads(faulty[0].text)


@pytest.mark.parametrize("place", [200, len(AVRO) // 2, len(AVRO) - 8])
def test_scrambled_bytes_are_never_silent(place: int) -> None:
    """Sixteen wrong bytes in schema, block or marker end the reading with a fault, and make up no event."""
    whole, _ = read(AVRO)
    good, faulty = read(AVRO[:place] + b"\xff" * 16 + AVRO[place + 16 :])
    assert len(faulty) == 1
    assert all(event in whole for event in good)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "The file is empty"),
        (gzip.compress(b""), "The file is the gzip of an empty file"),
        (gzip.compress(JSON)[:8], "The gzip ends too early"),
        (b"\x1f\x8b\x08rubbish", "The file is damaged: "),
        (b"PAR1 and more", "neither Avro nor JSON lines"),
        (b"[1, 2]\n", "neither Avro nor JSON lines"),
        (b"\n\n", "neither Avro nor JSON lines"),
        (b"Obj", "neither Avro nor JSON lines"),
        (b"Obj\x01", "Its header cannot be read"),
        (AVRO.replace(b"avro.codec\x08null", b"avro.codec\x08lzzz"), "Its codec is lzzz"),
    ],
    # Headers of gzip and Avro differ from one process to the next.
    ids=[
        "nothing",
        "gzip of nothing",
        "cut gzip",
        "no gzip",
        "parquet",
        "array",
        "blank",
        "cut",
        "header",
        "codec",
    ],
)
def test_files_that_are_nothing_are_one_fault(data: bytes, reason: str) -> None:
    """A file that is empty, of another format or broken from its start is one faulty event."""
    good, faulty = read(data)
    assert good == []
    assert [event.position for event in faulty] == [None]
    assert reason in faulty[0].reason


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_bad_line_is_one_fault_and_the_rest_continues(compress: type[bytes]) -> None:
    """Lines that are not events keep their text and their place; blank ones do not count."""
    bad = [
        '{"uuid": "u", ',
        "[]",
        '{"payload": 3}',
        '{"payload": {}, "sort_keys": [1.5]}',
        '{"x": "\\ud800"}',
    ]
    text = "\ufeff" + "\r\n".join([LINES[0], "", *bad, "   ", LINES[1]])
    good, faulty = read(compress(text.encode()))
    assert [0, len(bad) + 1] == [event.position for event in good]
    assert bad == [event.text for event in faulty]
    assert list(range(1, len(bad) + 1)) == [event.position for event in faulty]
    words = ["not JSON", "not a JSON object", "`payload` is not an object", "`sort_keys`", "not Unicode"]
    assert all(word in event.reason for word, event in zip(words, faulty, strict=True))


def test_a_line_that_is_no_text_is_kept_readable() -> None:
    """Bytes that are not UTF-8 are shown escaped."""
    good, faulty = read(JSON + b'\n{"uuid": "\xff"}')
    assert len(good) == ROWS
    assert [event.text for event in faulty] == ['{"uuid": "\\xff"}']


def test_a_cut_gzip_gives_its_lines_and_one_fault() -> None:
    """Lines of a truncated gzip are read, except the one in which it ends."""
    compressed = gzip.compress(JSON, 1)
    good, faulty = read(compressed[: len(compressed) * 3 // 4])
    assert 0 < len(good) < ROWS
    assert [{"events_read": len(good)}] == [json.loads(event.text) for event in faulty]
    assert list(range(len(good))) == [event.values["id"] for event in good]


def test_members_of_a_gzip_are_one_file() -> None:
    """Gzip files that were put one behind the other are read to the end."""
    half = len(JSON) // 2
    good, faulty = read(gzip.compress(JSON[:half]) + gzip.compress(JSON[half:]))
    assert len(good) == ROWS
    assert not faulty


@pytest.mark.parametrize("payload", ["", ', "payload": null'])
def test_an_event_without_row_is_an_event(payload: str) -> None:
    """A delete may come without payload; it is for its source to say what that means."""
    line = f'{{"uuid": "u", "source_metadata": {{"change_type": "DELETE"}}{payload}}}'
    [event] = read_events(line.encode(), Decoding())
    assert isinstance(event, Envelope)
    assert (event.has_payload, event.columns, event.values) == (False, (), {})


def test_a_fault_says_which_event_it_is() -> None:
    """A value that is not of its type names its column, and the event keeps its identity and its text."""
    schema = event_schema([("id", "long"), ("at", {"type": "long", "logicalType": "timestamp-micros"})])
    data = avro_file(schema, [{"id": 1, "at": 0}, {"id": 2, "at": 2**62}, {"id": 3, "at": 0}])
    good, [faulty] = read(data)
    assert [event.values["id"] for event in good] == [1, 3]
    assert faulty.reason.startswith("Column `at`: +148")
    assert "outside the years 1 to 9999; declare the column as STRING" in faulty.reason
    assert (faulty.table, faulty.event_id, faulty.position) == ("s.t", "s.t/uuid-00000001", 1)
    assert json.loads(faulty.text)["payload"] == {"id": 2, "at": 2**62}


def test_three_spellings_of_a_moment_are_one() -> None:
    """Moments with and without zone, with a space and with a `T`, are UTC to the microsecond."""
    spellings = ["2021-12-25 05:42:04.408", "2021-12-25T05:42:04.408", "2021-12-25T05:42:04.408000Z"]
    for spelling in spellings:
        line = json.dumps({"read_timestamp": spelling, "source_timestamp": spelling})
        [event] = read_events(line.encode(), Decoding())
        assert isinstance(event, Envelope)
        assert 1_640_410_924_408_000 == event.read_timestamp_micros == event.source_timestamp_micros


def test_a_stream_is_read_as_its_bytes() -> None:
    """A stream that can be wound back gives the same as the bytes."""
    for data in (AVRO, JSON, gzip.compress(JSON)):
        assert list(read_events(data, Decoding())) == list(read_events(BytesIO(data), Decoding()))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("length", [CHUNK_BYTES, 5 * CHUNK_BYTES + 7])
def test_a_line_that_is_too_long_is_one_fault(compress: type[bytes], length: int) -> None:
    """Nothing is kept of it but its beginning, and the lines around it arrive."""
    text = "\n".join([LINES[0], '{"x": "' + "y" * length, LINES[1]])
    events = list(read_events(compress(text.encode()), Decoding(bounds=Bounds(max_block_bytes=5_000))))
    first, fault, last = events
    assert isinstance(first, Envelope)
    assert isinstance(last, Envelope)
    assert (first.position, last.position) == (0, 2)
    assert isinstance(fault, FaultyEvent)
    assert f"{length + 7} bytes, more than `max_block_bytes`, 5000" in fault.text
    assert '{"x": "yy' in fault.text
    assert len(fault.text) < 500


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(1, 20))
def test_lines_do_not_depend_on_chunks(lines: list[bytes], chunk_bytes: int) -> None:
    """A line is the same for any number of chunks."""
    lines = [line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
    stream = BytesIO(b"{" + b"\n".join(lines))
    with (
        patch.object(lines_module, "CHUNK_BYTES", chunk_bytes),
        patch.object(text_files, "CHUNK_BYTES", chunk_bytes),
    ):
        lines_read = [line for block in read_blocks(stream) for line in block]
    assert [line for line in (b"{" + b"\n".join(lines)).split(b"\n") if line.strip()] == lines_read
