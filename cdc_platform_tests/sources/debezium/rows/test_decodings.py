"""Plain changes are decoded and written together: how many events are not."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from cdc_platform.model.stream.events import FaultyEvent
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.rows.state import DecoderState
from cdc_platform.sources.debezium.settings.connector import NullPolicy, SnapshotPolicy
from cdc_platform.sources.debezium.splits.marked_rows import from_octets, to_octets
from cdc_platform_tests.sources.debezium.rows.decoded_lines import (
    KEY_ALONE,
    OTHER,
    WHOLE,
    change,
    check_same,
    decode,
    scanned,
)
from cdc_platform_tests.sources.debezium.written_events import COLUMNS, TABLE, envelope, line, settings_with


@pytest.mark.parametrize(
    ("rest", "decodings"),
    [
        ({}, 1),
        ({"before": {"id": 1, "n": 1, "big": "a", "xs": [1]}}, 2),
        ({"before": {"id": 1, "n": 1, "big": "b", "xs": [1]}}, 2),
        ({"before": {"id": 2, "n": 1, "big": "a", "xs": [1]}}, 4),
        ({"source": {"version": "1.9"}}, 2),
    ],
)
def test_plain_changes_are_not_decoded_one_by_one(rest: dict[str, Any], decodings: int) -> None:
    """Of four equal updates, the first one and each that is no plain change are decoded in full."""
    plain = envelope("u", after={"id": 1, "n": 1, "big": "a", "xs": [1]})
    other = envelope("u", after=plain["after"], **json.loads(json.dumps(rest)))

    assert decodings == _count_decodings([plain, other, other, other])


@pytest.mark.parametrize(("policy", "decodings"), [(NullPolicy.NULL, 1), (NullPolicy.ERROR, 5)])
def test_updates_that_look_as_under_an_index_are_not_decoded_one_by_one(
    policy: NullPolicy, decodings: int
) -> None:
    """Zeros before an update end what is known of FULL only where NULL may stand for an unsent value."""
    update = envelope("u", before=WHOLE, after={**WHOLE, "n": 2})
    doubtful = envelope("u", before={**WHOLE, "n": 0, "xs": None}, after={**WHOLE, "big": "y"})
    values = [update, update, doubtful, update, doubtful, update]

    assert decodings == _count_decodings(values, null_policies={"smallint[]": policy})


@pytest.mark.parametrize(
    ("is_full", "before", "decodings"),
    [
        (False, KEY_ALONE, 2),
        (False, WHOLE, 5),
        (True, WHOLE, 2),
        (True, KEY_ALONE, 5),
    ],
)
def test_plain_deletes_are_not_decoded_one_by_one(
    is_full: bool, before: Mapping[str, Any], decodings: int
) -> None:
    """Of four equal deletes, only the first one is, if they show the identity that an update has shown."""
    update = envelope("u", before=WHOLE if is_full else None, after=WHOLE)
    deletes = [envelope("d", before=before, after=None)] * 4

    assert decodings == _count_decodings([update, *deletes])


def test_plain_inserts_under_full_are_not_decoded_one_by_one() -> None:
    """Of four inserts without orders only the first one is, though their rows may have had other keys."""
    update = envelope("u", before=WHOLE, after=WHOLE)
    inserts = [envelope("c", after=WHOLE, source={"lsn": 600 + number}) for number in range(4)]

    expected = 2
    assert expected == _count_decodings([update, *inserts])


def test_plain_deletes_of_a_declared_identity_are_not_decoded_one_by_one() -> None:
    """The same holds for a table in `full_identity`, even if an index was its identity before."""
    unusable = line(envelope("d", before={**WHOLE, "id": 0}), {"id": 0})
    state = DecoderState()
    assert [FaultyEvent] == [
        type(event) for event in Decoder(settings_with(), state).decode_lines([unusable])
    ]
    decoder, deletes = Decoder(settings_with(full_identity=(TABLE,)), state), range(4)
    text = line(envelope("d", before=WHOLE), {"id": 1})
    for _ in decoder.decode_beginning([text.encode() for _ in deletes]):
        pass
    decoder.plain.finish()

    assert [len(deletes) - 1] == [len(run) for run in decoder.plain.runs]


def _count_decodings(values: Sequence[Mapping[str, Any]], **options: Any) -> int:
    """Return how many events of the row with the key 1 are decoded in full."""
    with patch.object(Decoder, "_decode_row", autospec=True, side_effect=Decoder._decode_row) as decode_row:  # noqa: SLF001  counted where it is asked
        decode([line(value, {"id": 1}) for value in values], **options)
    return decode_row.call_count


def test_changes_of_many_tables_have_few_blocks() -> None:
    """Tables of which few changes arrive together share their blocks, each of which has a fixed cost."""
    tables = {f"public.t{number}": COLUMNS[TABLE] for number in range(40)}
    sources = [{"table": f"t{number % 40}", "lsn": 10 + number} for number in range(120)]
    texts = [line(envelope("u", after=WHOLE, source=source), {"id": 1}) for source in sources]
    with patch(f"{from_octets.__module__}.to_octets", side_effect=to_octets) as write:
        check_same(texts, {"columns": tables})

    # One by one; then those by which tables are known, and the others.
    assert [call.args[0].num_rows for call in write.call_args_list] == [40 + 80, 40, 80]


def test_after_another_table_was_found_empty_changes_are_decoded_by_column_again() -> None:
    """Only the change that comes first after the notification, and those at its position, are not."""
    others = [change("u", lsn) for lsn in (9, 11, 9, 13, 15, 17)]
    texts = [change("u", 3, source={"table": "items"}), change("u", 5), scanned(OTHER, 1), *others]
    options: dict[str, Any] = {"snapshots": SnapshotPolicy.REPLACE}
    check_same(texts, options)
    with patch.object(Decoder, "_decode_row", autospec=True, side_effect=Decoder._decode_row) as decode_row:  # noqa: SLF001  counted where it is asked
        decode(texts, **options)

    assert decode_row.call_count == 4
