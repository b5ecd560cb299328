"""Keys that one statement shifts or swaps, where the database checks them at its end only."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.applied_changes import Lake, row_change_of, rows_of
from cdc_platform_tests.sources.debezium.cycles import Cycles, append
from cdc_platform_tests.sources.debezium.deferred import FIRST, DeferredConnector, without_headers
from cdc_platform_tests.sources.debezium.written_events import TABLE, settings_with

STREAMS: Final = list(itertools.product((True, False), repeat=2))
UP: Final = {key: key + 1 for key in FIRST}


def rows_in_lake(
    connector: DeferredConnector, *, has_headers: bool, has_metadata: bool, repeats: bool
) -> Any:
    """Return the rows after a log of what was sent, once or twice, in one cycle."""
    lines = connector.lines if has_headers else without_headers(connector.lines)
    lake = Lake()
    with TemporaryDirectory() as folder:
        place = FilesInput(folder)
        cycles = Cycles(settings_with(input=place, has_transaction_topic=has_metadata))
        append(Path(folder) / "events.jsonl", lines * (1 + repeats))
        cycles.read()
        lake.take([row_change_of(row) for row in cycles.log])
    assert not lake.unresolved
    return sorted(rows_of(lake.tables, TABLE), key=lambda row: int(row["id"]))


@pytest.mark.parametrize(("has_headers", "has_metadata"), STREAMS)
@pytest.mark.parametrize(
    "statements",
    [
        [UP],
        [UP, {key + 1: key + 2 for key in FIRST}],
        [{1: 2, 2: 1}],
        [{6: 5, 5: 4, 4: 7}],
        [{1: 2, 2: 3, 3: 1}, {3: 2, 2: 3}],
    ],
)
def test_rows_whose_keys_shift_or_swap_are_all_there(
    statements: list[Mapping[int, int]], has_headers: bool, has_metadata: bool
) -> None:
    """Each key has the row that the database has there, with and without headers and metadata."""
    connector = DeferredConnector()
    connector.insert_all(FIRST)
    connector.begin()
    for moves in statements:
        connector.move_all(moves)
    connector.change(3, n=9)
    connector.end()
    got = rows_in_lake(connector, has_headers=has_headers, has_metadata=has_metadata, repeats=False)
    assert connector.rows_sent() == got


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.permutations(sorted(FIRST)), st.permutations(sorted(FIRST))), min_size=1, max_size=3
    ),
    st.sampled_from(STREAMS),
    st.booleans(),
)
def test_any_permutation_of_keys_is_followed(
    permutations: list[tuple[list[int], list[int]]], metadata_flags: tuple[bool, bool], repeats: bool
) -> None:
    """For any order in which a statement reaches the rows, also if all of it is repeated."""
    connector = DeferredConnector()
    connector.insert_all(FIRST)
    connector.begin()
    for movers, targets in permutations:
        connector.move_all({old: new for old, new in zip(movers, targets, strict=True) if old != new})
    connector.end()
    assert connector.rows_sent() == rows_in_lake(
        connector, has_headers=metadata_flags[0], has_metadata=metadata_flags[1], repeats=repeats
    )


@pytest.mark.parametrize("before", [{"id": 2}, {"id": 2, "n": 0, "big": "a default", "xs": None}])
def test_a_row_that_continues_takes_nothing_from_others(tmp_path: Path, before: dict[str, Any]) -> None:
    """Without FULL the row before has its key and defaults alone, which does not make it another row."""
    connector = DeferredConnector()
    connector.insert_all({1: {"n": 7, "big": "x", "xs": [1]}})
    connector.begin()
    connector.move_all({1: 2})
    connector.move_all({2: 3})
    connector.end()
    messages = [json.loads(text) for text in connector.lines]
    for item in messages:
        if item["value"].get("op") == "d":
            item["value"]["before"] = before | {"id": item["key"]["id"]}
    cycles = Cycles(settings_with(input=FilesInput(str(tmp_path)), has_transaction_topic=True))
    append(tmp_path / "events.jsonl", [json.dumps(item) for item in messages])
    cycles.read()
    assert [row["mod_type"] for row in cycles.log] == ["INSERT", "DELETE", "INSERT", "DELETE", "INSERT"]
    assert [json.loads(row["mods"][0]["keys"])["id"] for row in cycles.log] == [1, 1, 2, 2, 3]


def test_columns_chosen_as_a_key_may_shift(tmp_path: Path) -> None:
    """An update of such a column is both halves of a key change, and leaves its key before others take it."""
    connector = DeferredConnector()
    connector.begin()
    for place, key in enumerate((1, 2, 3)):
        images = {"before": {"id": place, "n": key}, "after": {"id": place, "n": key + 1}}
        connector.send("u", {"n": key + 1}, connector.lsn + 10, **images)
    connector.end()
    place_of = FilesInput(str(tmp_path))
    cycles = Cycles(settings_with(input=place_of, has_transaction_topic=True, full_identity=(TABLE,)))
    append(tmp_path / "events.jsonl", connector.lines)
    cycles.read()
    lake = Lake({(TABLE, f'{{"n":{key}}}'): {"id": key - 1} for key in (1, 2, 3)})
    lake.take([row_change_of(row) for row in cycles.log])
    assert [(row["n"], row["id"]) for row in rows_of(lake.tables, TABLE)] == [(2, 0), (3, 1), (4, 2)]
