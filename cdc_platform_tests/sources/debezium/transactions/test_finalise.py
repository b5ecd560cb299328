"""Halves of a key change, of which the second is read first, in files as in topics."""

from pathlib import Path

import pytest

from cdc_platform.sources.debezium.settings.connector import NullPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import FilesInput
from cdc_platform_tests.sources.debezium.cycles import Cycles, Record
from cdc_platform_tests.sources.debezium.written_events import envelope, line, settings_with
from cdc_platform_tests.support.debezium.connector import feed

GONE = line(envelope("d", before={"id": 1}), {"id": 1})
MOVED = line(envelope("c", after={"id": 9, "n": 1, "xs": None}), {"id": 9})


def moved(folder: Path, policy: NullPolicy, *lines: str) -> Record:
    """Return a cycle's change for the half that takes a key."""
    cycles = Cycles(settings_with(input=FilesInput(str(folder)), null_policies={"smallint[]": policy}))
    return next(row for row in feed(cycles, lines).log if row["mod_type"] != "DELETE")


@pytest.mark.parametrize("lines", [(GONE, MOVED), (MOVED, GONE)])
def test_null_of_a_key_change_is_what_its_policy_says(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """A value that is null may not have been sent, which is known once both halves are."""
    row = moved(tmp_path, NullPolicy.UNAVAILABLE, *lines)
    assert row["event"]["previous_keys"] == '{"id":1}'
    assert row["event"]["unavailable_columns"] == ["xs"]


@pytest.mark.parametrize("lines", [(GONE, MOVED), (MOVED, GONE)])
def test_null_of_a_key_change_without_a_policy_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """It goes to quarantine with its own text, in any order of the halves."""
    event = moved(tmp_path, NullPolicy.ERROR, *lines)["event"]
    assert "`xs` is null" in event["fault"]
    assert '"id": 9' in event["text"]


def test_null_of_a_new_row_is_null(tmp_path: Path) -> None:
    """While no other half is known, the row is a new one."""
    row = moved(tmp_path, NullPolicy.ERROR, MOVED)
    assert row["mods"][0]["new_values"] == '{"n":1,"xs":null}'
