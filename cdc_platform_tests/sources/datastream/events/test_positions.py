"""Positions in the logs of sources: later ones are greater, and an event without one is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.errors import RecordUnreadable
from cdc_platform.sources.datastream.events.positions import PositionRules, locate
from cdc_platform.sources.datastream.settings.kinds import SourceKind
from cdc_platform.sources.datastream.settings.policies import OrderBy
from cdc_platform_tests.sources.datastream.generated_events import to_run
from cdc_platform_tests.strategies import log_places

KINDS = tuple(SourceKind)


def place(kind: str, metadata: dict[str, Any], *, ms: int = 0, keys: tuple[Any, ...] = ()) -> str:
    """Return the place of an event with this metadata."""
    event = {"source_timestamp": ms, "source_metadata": metadata, "sort_keys": keys}
    return locate(SourceKind(kind), to_run(event), PositionRules()).places[0]


def binlog(file: str, position: int) -> dict[str, Any]:
    """Return the metadata of a place in a binary log."""
    return {"log_file": file, "log_position": position}


def redo(scn: int, rs_id: str | None, ssn: int = 0) -> dict[str, Any]:
    """Return the metadata of a place in Oracle's redo log."""
    return {"scn": scn, "rs_id": rs_id, "ssn": ssn}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(data=st.data())
def test_order_of_places_is_the_order_of_numbers(kind: SourceKind, data: st.DataObject) -> None:
    """Places compare as texts as their typed parts do, which makes their order a total one."""
    item, event = data.draw(log_places(kind))
    other, other_event = data.draw(log_places(kind))
    texts = [locate(kind, to_run(each), PositionRules()).places[0] for each in (event, other_event)]
    assert (item < other, item == other) == (texts[0] < texts[1], texts[0] == texts[1])


@pytest.mark.parametrize(
    ("kind", "earlier", "later"),
    [
        ("mysql", binlog("mysql-bin.000014", 999), binlog("mysql-bin.000014", 1000)),
        ("mysql", binlog("mysql-bin.999999", 4), binlog("mysql-bin.1000000", 4)),
        ("mysql", binlog("mysql-bin.000009", 9_000), binlog("mysql-bin.000010", 4)),
        # The documentation's own example: the record set falls while the change number rises.
        (
            "oracle",
            redo(15869116216871, "0x0073c9.000a4e4c.01d0", 67),
            redo(15869150473224, "0x006cf4.00056b26.0010"),
        ),
        (
            "oracle",
            redo(15869150473224, "0x006cf4.00056b26.0010"),
            redo(158691504732555, "0x006cf4.00056b26.0011"),
        ),
        ("oracle", redo(7, " 0x0000d4.000091be.0010 "), redo(7, "0x0000d4.000091be.0011")),  # padded or not
        ("oracle", redo(7, "0x0000d4.000091be.0010", 9), redo(7, "0x0000d4.000091be.0010", 10)),
        ("oracle", redo(7, None), redo(7, "0x000000.00000000.0001")),
        ("oracle", redo(7, ""), redo(7, "0x000000.00000000.0001")),
        ("postgresql", {"lsn": "9/FFFFFFFF"}, {"lsn": "10/0"}),
        ("postgresql", {"lsn": "A0/0"}, {"lsn": "100/0"}),
        ("postgresql", {"lsn": "7FFFFFFF/0"}, {"lsn": "FFFFFFFF/FFFFFFFF"}),  # unsigned
        ("postgresql", {"lsn": "16/CB002DB0"}, {"lsn": "16/cb002db1"}),
        ("sqlserver", {"lsn": "00000025:00000fff:0003"}, {"lsn": "00000025:00001000:0001"}),
        ("sqlserver", {"lsn": "25:9:1"}, {"lsn": "00000025:0000000a:0001"}),
        (
            "sqlserver",
            {"lsn": "25:9:1", "physical_location": [1, 9, 3]},
            {"lsn": "25:9:1", "physical_location": [1, 10, 0]},
        ),
    ],
)
def test_later_places_are_greater(kind: str, earlier: dict[str, Any], later: dict[str, Any]) -> None:
    """Places that a comparison of texts, or of a part of them, gets wrong are in the order of the log."""
    assert place(kind, earlier, ms=9_000) < place(kind, later, ms=1_000)  # whatever the timestamps say


@pytest.mark.parametrize(
    ("kind", "metadata", "keys", "same_as"),
    [
        ("mysql", {"binlog_file": "b.7", "binlog_position": 9}, (), binlog("b.7", 9)),  # GTID
        ("mysql", binlog("", 0) | {"binlog_file": "b.7", "binlog_position": 9}, (), binlog("b.7", 9)),
        ("mysql", {"log_file": None, "log_position": None}, (0, "b.7", 9), binlog("b.7", 9)),
        ("mysql", {}, (0, "b.7", 9), binlog("b.7", 9)),
        ("mysql", {"log_file": "b.7", "log_position": None}, (0, "b.7", 9), binlog("b.7", 9)),
        ("oracle", {}, (0, 7, " 0x1.2.3 ", 4), redo(7, "0x1.2.3", 4)),
        ("oracle", {"scn": 7}, (0, 7, " 0x1.2.3 ", 4), redo(7, "0x1.2.3", 4)),
        ("oracle", {"scn": 7, "rs_id": "", "ssn": 4}, (0, 7, "0x1.2.3", 5), redo(7, "0x1.2.3", 4)),
        ("oracle", {"scn": 7, "rs_id": "0x1.2.3"}, (0, 7, "0x1.2.3", 4), redo(7, "0x1.2.3", 4)),
        ("oracle", redo(7, "0x1.2.3"), (0, 1663072026552, "", 0), redo(7, "0x1.2.3")),  # a counter, in 2021
        ("postgresql", {"lsn": ""}, (0, "A/1"), {"lsn": "A/1"}),
        ("sqlserver", {}, (0, "1:2:3"), {"lsn": "1:2:3"}),
    ],
)
def test_sort_keys_stand_in_for_metadata(
    kind: str, metadata: dict[str, Any], keys: tuple[Any, ...], same_as: dict[str, Any]
) -> None:
    """Each part of a place that the metadata do not state is taken from the sort keys, and no other."""
    assert place(kind, same_as) == place(kind, metadata, keys=keys)


@pytest.mark.parametrize(
    ("kind", "metadata", "keys"),
    [
        ("mysql", {}, ()),
        ("mysql", binlog("", 0), (0, "", 0)),
        ("mysql", {"log_file": ""}, (0, 0, 0)),  # the log's file was a number in 2025
        ("mysql", {"log_file": "mysql-bin.000001"}, ()),
        ("mysql", binlog("mysql-bin.index", 4), ()),
        ("mysql", binlog("mysql-bin.000001", -1), ()),
        ("mysql", {"log_file": "mysql-bin.000001", "log_position": True}, ()),
        ("oracle", {}, ()),
        ("oracle", {}, (0, 1663072026552, "", 0)),  # a counter is not a change number
        ("oracle", redo(7, "garbage"), ()),
        ("postgresql", {}, ()),
        ("postgresql", {"lsn": "G/1"}, ()),
        ("postgresql", {"lsn": "123456789/1"}, ()),
        ("sqlserver", {}, (1640410924408,)),
        ("sqlserver", {"lsn": "1/2"}, ()),
        ("sqlserver", {"lsn": "37000000183200003"}, ()),  # a number may be decimal or hexadecimal
        ("sqlserver", {"lsn": "0x00000025000007280003"}, ()),
        ("sqlserver", {"lsn": "1:2:3", "physical_location": [1, 2]}, ()),
        ("mongodb", {}, (7,)),
        ("mongodb", {}, (7, "x")),
    ],
)
def test_events_without_a_place_are_refused(
    kind: str, metadata: dict[str, Any], keys: tuple[Any, ...]
) -> None:
    """An event without a position is neither first nor last: it is a fault that names the field."""
    with pytest.raises(RecordUnreadable, match="place in its source's log is unknown: `"):
        place(kind, metadata, keys=keys)


@pytest.mark.parametrize("kind", ["mysql", "oracle", "postgresql", "sqlserver", "salesforce"])
def test_events_without_a_moment_are_refused(kind: str) -> None:
    """The source timestamp is a part of every place but MongoDB's."""
    metadata = {**binlog("b.1", 1), **redo(1, ""), "lsn": "1:2:3" if kind == "sqlserver" else "1/2"}
    with pytest.raises(RecordUnreadable, match="source_timestamp"):
        locate(SourceKind(kind), to_run({"source_metadata": metadata}), PositionRules())


def test_logs_that_changed_their_name_follow_each_other_as_declared() -> None:
    """After a failover the new server's logs follow the old one's, though their numbers start over."""
    rules = PositionRules(binlog_basenames=("old-bin", "new-bin"))
    old, new = (
        locate(SourceKind.MYSQL, to_run({"source_timestamp": 0, "source_metadata": each}), rules).places[0]
        for each in (binlog("old-bin.000900", 4), binlog("new-bin.000001", 4))
    )
    assert old < new


def test_a_name_of_logs_that_is_not_declared_is_refused() -> None:
    """Where names are declared, another one is a fault that says what to do."""
    event = {"source_timestamp": 0, "source_metadata": binlog("third-bin.000001", 4)}
    with pytest.raises(RecordUnreadable, match=r"append the new name.*third-bin"):
        locate(SourceKind.MYSQL, to_run(event), PositionRules(("old-bin", "new-bin")))


@pytest.mark.parametrize("kind", ["postgresql", "sqlserver"])
def test_timestamps_come_first_where_it_is_asked_for(kind: str) -> None:
    """After a restore at which the log restarted, timestamps decide the order."""
    lsns = ("9/0", "1/0") if kind == "postgresql" else ("9:0:0", "1:0:0")
    events = [{"source_timestamp": n, "source_metadata": {"lsn": lsn}} for n, lsn in enumerate(lsns)]
    for order_by, expected in ((OrderBy.POSITION, False), (OrderBy.TIMESTAMP, True)):
        rules = PositionRules(order_by=order_by)
        first, second = (locate(SourceKind(kind), to_run(event), rules).places[0] for event in events)
        assert expected == (first < second)
