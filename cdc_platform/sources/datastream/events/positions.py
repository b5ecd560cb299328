"""Positions of events in the logs of each source, as texts that sort in the order of the log.

Numbers are compared as numbers, not as the texts of the source: `mysql-bin.1000000` follows
`mysql-bin.999999`, and `10/0` follows `9/FFFFFFFF`. `sort_keys` replace missing fields of `source_metadata`.
They have lower priority because they mix types and have changed their meaning over the years.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.stream.ordering_key import COMMIT_DIGITS
from cdc_platform.sources.datastream.events.event_runs import EventRun
from cdc_platform.sources.datastream.settings.kinds import SourceKind
from cdc_platform.sources.datastream.settings.policies import OrderBy

_BINLOG: Final = re.compile(r"(.+)\.(\d{1,18})", re.ASCII | re.DOTALL)
_BINLOG_DIGITS: Final = 18
_RS_ID: Final = re.compile(
    r"0[xX]([0-9A-Fa-f]{1,8})\.([0-9A-Fa-f]{1,8})\.([0-9A-Fa-f]{1,8})",
    re.ASCII,
)
_NO_RS_ID: Final = "0" * 24
_PG_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)
_SQLSERVER_LSN: Final = re.compile(
    r"(?:0[xX])?([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{1,8})",
    re.ASCII,
)
_MOMENT: Final = f"%0{COMMIT_DIGITS}d"
_HEX: Final = "%016x"
_NO_LOCATION: Final = (0, 0, 0)
_U32: Final = 1 << 32
_MAX_DIGITS: Final = 64
"""Maximum number of digits of a number, including leading zeros."""
_U64: Final = 1 << 64


class Positions(NamedTuple):
    """Positions of captured changes.

    Args:
        clocks: comparable with the clocks of backfilled rows.
        places: comparable with the places of other captured changes of the source.
    """

    clocks: Sequence[str]
    places: Sequence[str]


class PositionRules(NamedTuple):
    """Settings that positions depend on."""

    binlog_basenames: tuple[str, ...] = ()
    order_by: str = OrderBy.POSITION.value


Locate: TypeAlias = Callable[[EventRun, PositionRules], Positions]


def moments_of(run: EventRun) -> list[str]:
    """Return the source timestamps of events, at fixed width.

    Raises:
        RecordUnreadable: a timestamp is missing or before 1970.
    """
    unusable = [micros for micros in run.source_micros if micros is None or micros < 0]
    if unusable:
        raise RecordUnreadable(f"The event has no usable `source_timestamp`, but: {unusable[0]}")
    return list(map(_MOMENT.__mod__, run.source_micros))


def locate(kind: SourceKind, run: EventRun, rules: PositionRules, *, is_removal: bool = False) -> Positions:
    """Return the positions of captured changes, removals or writes, in the log of their source.

    Raises:
        RecordUnreadable: an event does not state it, so it has no place in the order.
    """
    return (_LOCATE_REMOVAL if is_removal else _LOCATE)[kind](run, rules)


def backfill_clocks(kind: SourceKind, run: EventRun) -> list[str]:
    """Return when a backfill read the rows, comparable with the clock of captured changes.

    Raises:
        RecordUnreadable: an event does not state it.
    """
    if kind is SourceKind.ORACLE:
        return _numbers(run.member("scn"), "scn")
    if kind is SourceKind.MONGODB:
        return _cluster_times(run)[0]
    return moments_of(run)


def _mysql(run: EventRun, rules: PositionRules) -> Positions:
    files = _first_true(run.member("log_file"), run.member("binlog_file"))
    # Without a file, a position is that of no log.
    places = [
        place if log and place is not None else other
        for log, place, other in zip(
            *map(run.member, ("log_file", "log_position", "binlog_position")), strict=True
        )
    ]
    if not all(files) or None in places:
        for number, keys in enumerate(run.sort_keys):
            if len(keys) > 2 and (not files[number] or places[number] is None):  # noqa: PLR2004  [timestamp, log_file, log_position]
                files[number], places[number] = files[number] or keys[1], keys[2]
    logs = [_log_of(file, rules.binlog_basenames) for file in files]
    moments = moments_of(run)
    offsets = _numbers(places, "log_position")
    parts = zip(logs, offsets, moments, strict=True)
    return Positions(moments, [f"{log} {offset} {moment}" for log, offset, moment in parts])


def _log_of(file: object, basenames: tuple[str, ...]) -> str:
    log = _binlog(file, basenames) if isinstance(file, str) else None
    if log is None:
        raise _missing("log_file", file)
    return log


# Thousands of events are in one file of the log.
@lru_cache(maxsize=256)
def _binlog(file: str, basenames: tuple[str, ...]) -> str | None:
    """Return the rank of a log and the number of its file, at fixed width; None for other names."""
    match = _BINLOG.fullmatch(file)
    return None if match is None else f"{_basename_rank(match[1], basenames)} {match[2]:0>{_BINLOG_DIGITS}}"


def _basename_rank(base: str, basenames: tuple[str, ...]) -> str:
    """Return the rank of a name among the declared ones; without a declaration all logs have one name."""
    if not basenames:
        return "00"
    if base not in basenames:
        raise RecordUnreadable(
            "The binary logs changed their name, and `binlog_basenames` does not say when; append the new "
            f"name to it. Name: {base!r}"
        )
    return f"{basenames.index(base):02d}"


def _oracle(run: EventRun, _rules: PositionRules) -> Positions:
    places = [run.member("scn"), run.member("rs_id"), run.member("ssn")]
    if any(None in values for values in places) or "" in places[1]:
        places = list(zip(*map(_whole_place, *places, run.sort_keys), strict=True))
    clocks, sets = _numbers(places[0], "scn"), map(_record_set, places[1])
    rows_of_sets = _numbers([ssn or 0 for ssn in places[2]], "ssn")
    parts = zip(clocks, sets, rows_of_sets, moments_of(run), strict=True)
    return Positions(clocks, list(map(" ".join, parts)))


def _whole_place(scn: object, rs_id: object, ssn: object, keys: Sequence[Any]) -> tuple[object, ...]:
    """Return the parts of a place; those that the metadata do not state are taken from the sort keys."""
    # Before November 2021 the second sort key was a counter of Datastream, and the third one was empty.
    if len(keys) <= 3 or not keys[2]:  # noqa: PLR2004  [timestamp, scn, rs_id, ssn]
        return scn, rs_id, ssn
    return keys[1] if scn is None else scn, rs_id or keys[2], keys[3] if ssn is None else ssn


def _record_set(rs_id: object) -> str:
    """Return the three numbers of a record set, which may have a space on both sides."""
    text = rs_id.strip() if isinstance(rs_id, str) else rs_id
    if not text:
        return _NO_RS_ID
    match = _RS_ID.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _missing("rs_id", rs_id)
    first, second, third = match.groups()
    return f"{first:0>8}{second:0>8}{third:0>8}".lower()


def _postgresql(run: EventRun, rules: PositionRules) -> Positions:
    return _time_positions(run, [_parts_of_lsn(_PG_LSN, lsn) for lsn in _lsns(run)], rules)


def _sqlserver(run: EventRun, rules: PositionRules) -> Positions:
    lsns = [_parts_of_lsn(_SQLSERVER_LSN, lsn) for lsn in _lsns(run)]
    locations = map(_physical, run.member("physical_location"))
    return _time_positions(run, list(map(" ".join, zip(lsns, locations, strict=True))), rules)


def _sqlserver_removal(run: EventRun, rules: PositionRules) -> Positions:
    """Return the places of removals: before all writes under their log sequence number.

    File, page and slot state where a row is stored, not when it changed, and Datastream's documentation
    orders by timestamp and number alone. So a location must not decide between a removal and a write. It
    stays a part of the places of writes, because existing lakes have stored it.
    """
    metadata = {name: values for name, values in run.metadata.items() if name != "physical_location"}
    return _sqlserver(replace(run, metadata=metadata), rules)


def _lsns(run: EventRun) -> list[object]:
    lsns = zip(run.member("lsn"), run.sort_keys, strict=True)
    return [keys[1] if not lsn and len(keys) > 1 else lsn for lsn, keys in lsns]


def _parts_of_lsn(form: re.Pattern[str], lsn: object) -> str:
    """Return the numbers of a log sequence number, at fixed width."""
    match = form.fullmatch(lsn) if isinstance(lsn, str) else None
    if match is None:
        raise _missing("lsn", lsn)
    return "".join(f"{part:0>8}" for part in match.groups()).lower()


def _physical(location: Any) -> str:
    """Return file, page and slot of a row; zeros if the event does not state them."""
    location = location or _NO_LOCATION
    is_location = isinstance(location, list | tuple) and len(location) == len(_NO_LOCATION)
    if not is_location or not all(isinstance(part, int) and 0 <= part < _U32 for part in location):
        raise _missing("physical_location", location)
    return "".join(f"{part:08x}" for part in location)


def _time_positions(run: EventRun, places: Sequence[str], rules: PositionRules) -> Positions:
    moments = moments_of(run)
    parts = (moments, places) if rules.order_by == OrderBy.TIMESTAMP.value else (places, moments)
    return Positions(moments, list(map(" ".join, zip(*parts, strict=True))))


def _mongodb(run: EventRun, _rules: PositionRules) -> Positions:
    seconds, ordinals = _cluster_times(run)
    return Positions(seconds, list(map(" ".join, zip(seconds, ordinals, strict=True))))


def _cluster_times(run: EventRun) -> tuple[list[str], list[str]]:
    """Return seconds and ordinals; for backfilled rows, seconds and nanoseconds of the clock."""
    for keys in run.sort_keys:
        if len(keys) < 2:  # noqa: PLR2004  [seconds, ordinal]
            raise _missing("sort_keys", list(keys))
    seconds, ordinals = ([keys[part] for keys in run.sort_keys] for part in (0, 1))
    return _numbers(seconds, "sort_keys"), _numbers(ordinals, "sort_keys")


def _salesforce(run: EventRun, _rules: PositionRules) -> Positions:
    moments = moments_of(run)
    return Positions(moments, moments)


def _first_true(values: Sequence[Any], fallbacks: Sequence[Any]) -> list[Any]:
    return [value or other for value, other in zip(values, fallbacks, strict=True)]


def _numbers(values: Sequence[object], field: str) -> list[str]:
    """Return unsigned 64-bit numbers as sixteen hex digits."""
    if set(map(type, values)) == {int} and min(values) >= 0 and max(values) < _U64:  # type: ignore[type-var, operator]
        return list(map(_HEX.__mod__, values))
    return [_number(value, field) for value in values]


def _number(value: object, field: str) -> str:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        value = int(value)
    if type(value) is not int or not 0 <= value < _U64:
        raise _missing(field, value)
    return _HEX % value


def _missing(field: str, value: object) -> RecordUnreadable:
    return RecordUnreadable(
        f"The event's place in its source's log is unknown: `{field}` is missing or not as documented, so it "
        f"can be neither newer nor older than others. It says: {value!r}"
    )


_LOCATE: Final[Mapping[SourceKind, Locate]] = {
    SourceKind.MYSQL: _mysql,
    SourceKind.ORACLE: _oracle,
    SourceKind.POSTGRESQL: _postgresql,
    SourceKind.SQLSERVER: _sqlserver,
    SourceKind.SALESFORCE: _salesforce,
    SourceKind.MONGODB: _mongodb,
}
_LOCATE_REMOVAL: Final[Mapping[SourceKind, Locate]] = {**_LOCATE, SourceKind.SQLSERVER: _sqlserver_removal}
