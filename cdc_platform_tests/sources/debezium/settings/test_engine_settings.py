"""Every setting reaches the engine, and none that would break the spool's guarantees."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_platform.errors import SettingError
from cdc_platform.sources.debezium.engine.engine import Order
from cdc_platform.sources.debezium.settings.engine_settings import TABLE_FILTERS, EngineInput, Snapshot

SETTINGS = EngineInput(
    spool="spool",
    host="db",
    port=6432,
    database="shop",
    user="me",
    password="p ä\"'\n",  # noqa: S106  no real one
    tables=("public.a", "public.b_.*"),
    slot="s",
    publication="p",
    snapshot=Snapshot.NEVER,
    with_schemas=False,
    properties={"binary.handling.mode": "hex", "message.prefix.include.list": "mine"},
)


def test_an_order_reaches_the_other_process_as_it_is() -> None:
    """Password and all, in one line."""
    order = Order(SETTINGS, report_to=7)
    text = order.to_json()
    assert "\n" not in text
    assert order == Order.from_json(text)


def test_a_password_is_not_shown() -> None:
    """Logs and traces show settings."""
    assert "p ä" not in repr(SETTINGS)


def test_settings_become_properties_of_the_connector() -> None:
    """The user's own properties are added to the platform's, and override its defaults."""
    properties = SETTINGS.connector_properties(Path("offsets.dat"), Path("signals.jsonl"))
    expected = {
        "database.hostname": "db",
        "database.port": "6432",
        "table.include.list": "public.a,public.b_.*",
        "snapshot.mode": "no_data",
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": "offsets.dat",
        "offset.flush.interval.ms": "0",
        "binary.handling.mode": "hex",
        "skipped.operations": "none",
        "message.prefix.include.list": "mine,cdc_platform.caught_up.*",
    }
    assert expected == {name: properties[name] for name in expected}


@pytest.mark.parametrize(
    "name",
    [
        "offset.flush.interval.ms",  # what is acknowledged is flushed
        "database.password",  # has a setting
        "value.converter.schemas.enable",  # has a setting
        "provide.transaction.metadata",  # acknowledging goes by transactions
        "post.processors",  # they select values of a later moment
        *TABLE_FILTERS,  # tables that they leave out would count as read
    ],
)
def test_properties_that_are_set_elsewhere_are_refused(name: str) -> None:
    """The message names the property."""
    with pytest.raises(SettingError, match=name):
        EngineInput(spool="s", host="h", database="d", user="u", properties={name: "1"})


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("public[.]t,public[.]u", "one entry for each table"),
        (r"public[.]t\\,u", "one entry for each table"),
        (r"\p{Lower}[.]u", "Java and Python"),
        ("(?i)public[.]t", "Java and Python"),
        ("public[.]t)|(u", "Java and Python"),
    ],
)
def test_entries_that_choose_other_tables_than_they_seem_to_are_refused(entry: str, problem: str) -> None:
    """The connector would capture tables whose rows it does not read."""
    with pytest.raises(SettingError, match=f"`input.engine.tables` .*{problem}"):
        EngineInput(spool="s", host="h", database="d", user="u", tables=("public[.]v", entry))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("public.t", True),
        ("PUBLIC.T", True),
        ("public.u, v", True),
        ("public.t2", False),
        ("public.Ä", False),
    ],
)
def test_tables_are_chosen_as_the_connector_does(name: str, expected: bool) -> None:
    """By their whole name, in any case of ASCII, and an escaped comma is part of it."""
    settings = EngineInput(
        spool="s", host="h", database="d", user="u", tables=(" public[.]t ", r"public[.]u\, v", "public[.]ä")
    )
    assert expected is settings.selects(name)
    assert replace(settings, tables=()).selects(name)
