"""Positions of events in the logs of each source, as texts that sort in the order of the log.

Numbers are compared as numbers, not as the texts of the source: `mysql-bin.1000000` follows
`mysql-bin.999999`, and `10/0` follows `9/FFFFFFFF`. `sort_keys` replace missing fields of `source_metadata`.
They have lower priority because they mix types and have changed their meaning over the years.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.stream.ordering_key import COMMIT_DIGITS
from cdc_platform.sources.datastream.events.envelope import Envelope
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
_NO_LOCATION: Final = (0, 0, 0)
_U32: Final = 1 << 32
_MAX_DIGITS: Final = 64
"""Maximum number of digits of a number, including leading zeros."""
_U64: Final = 1 << 64


class Position(Struct, frozen=True):
    """Position of a captured change.

    Args:
        clock: comparable with the clock of a backfilled row.
        place: comparable with the places of other captured changes of the source.
    """

    clock: str
    place: str


class PositionRules(NamedTuple):
    """Settings that positions depend on."""

    binlog_basenames: tuple[str, ...] = ()
    order_by: str = OrderBy.POSITION.value


Locate: TypeAlias = Callable[[Envelope, PositionRules], Position]


def moment_of(envelope: Envelope) -> str:
    """Return the event's source timestamp, at fixed width.

    Raises:
        RecordUnreadable: the timestamp is missing or before 1970.
    """
    micros = envelope.source_timestamp_micros
    if micros is None or micros < 0:
        raise RecordUnreadable(f"The event has no usable `source_timestamp`, but: {micros}")
    return _MOMENT % micros


def locate(
    kind: SourceKind, envelope: Envelope, rules: PositionRules, *, is_removal: bool = False
) -> Position:
    """Return the position of a captured change, a removal or a write, in the log of its source.

    Raises:
        RecordUnreadable: the event does not state it, so it has no place in the order.
    """
    return (_LOCATE_REMOVAL if is_removal else _LOCATE)[kind](envelope, rules)


def backfill_clock(kind: SourceKind, envelope: Envelope) -> str:
    """Return when a backfill read a row, comparable with the clock of captured changes.

    Raises:
        RecordUnreadable: the event does not state it.
    """
    if kind is SourceKind.ORACLE:
        return _number(envelope.source_metadata.get("scn"), "scn")
    if kind is SourceKind.MONGODB:
        return _cluster_time(envelope)[0]
    return moment_of(envelope)


def _mysql(envelope: Envelope, rules: PositionRules) -> Position:
    metadata, keys = envelope.source_metadata, envelope.sort_keys
    file = metadata.get("log_file") or metadata.get("binlog_file")
    place = metadata.get("log_position")
    place = metadata.get("binlog_position") if place is None else place
    if not file and len(keys) > 2:  # noqa: PLR2004  [timestamp, log_file, log_position]
        file, place = keys[1], keys[2]
    name = _binlog(file) if isinstance(file, str) else None
    if name is None:
        raise _missing("log_file", file)
    base, number = name
    moment = moment_of(envelope)
    offset = _number(place, "log_position")
    return Position(moment, f"{_basename_rank(base, rules)} {number} {offset} {moment}")


# Thousands of events are in one file of the log.
@lru_cache(maxsize=256)
def _binlog(file: str) -> tuple[str, str] | None:
    """Return the name of a log and the number of its file, at fixed width; None for other names."""
    match = _BINLOG.fullmatch(file)
    return None if match is None else (match[1], f"{match[2]:0>{_BINLOG_DIGITS}}")


def _basename_rank(base: str, rules: PositionRules) -> str:
    """Return the rank of a name among the declared ones; without a declaration all logs have one name."""
    basenames = rules.binlog_basenames
    if not basenames:
        return "00"
    if base not in basenames:
        raise RecordUnreadable(
            "The binary logs changed their name, and `binlog_basenames` does not say when; append the new "
            f"name to it. Name: {base!r}"
        )
    return f"{basenames.index(base):02d}"


def _oracle(envelope: Envelope, _rules: PositionRules) -> Position:
    metadata, keys = envelope.source_metadata, envelope.sort_keys
    scn, rs_id, ssn = metadata.get("scn"), metadata.get("rs_id"), metadata.get("ssn")
    if scn is None and len(keys) > 3 and keys[2]:  # noqa: PLR2004  [timestamp, scn, rs_id, ssn]
        # Before November 2021 the second sort key was a counter of Datastream, and the third one was empty.
        scn, rs_id, ssn = keys[1:4]
    clock = _number(scn, "scn")
    return Position(clock, f"{clock} {_record_set(rs_id)} {_number(ssn or 0, 'ssn')} {moment_of(envelope)}")


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


def _postgresql(envelope: Envelope, rules: PositionRules) -> Position:
    lsn = _lsn(envelope)
    match = _PG_LSN.fullmatch(lsn) if isinstance(lsn, str) else None
    if match is None:
        raise _missing("lsn", lsn)
    high, low = match.groups()
    return _time_position(envelope, f"{high:0>8}{low:0>8}".lower(), rules)


def _sqlserver(envelope: Envelope, rules: PositionRules) -> Position:
    lsn = _lsn(envelope)
    match = _SQLSERVER_LSN.fullmatch(lsn) if isinstance(lsn, str) else None
    if match is None:
        raise _missing("lsn", lsn)
    first, second, third = match.groups()
    place = f"{first:0>8}{second:0>8}{third:0>8}".lower()
    return _time_position(envelope, f"{place} {_physical(envelope.source_metadata)}", rules)


def _sqlserver_removal(envelope: Envelope, rules: PositionRules) -> Position:
    """Return the place of a removal: before all writes under its log sequence number.

    File, page and slot state where a row is stored, not when it changed, and Datastream's documentation
    orders by timestamp and number alone. So a location must not decide between a removal and a write. It
    stays a part of the places of writes, because existing lakes have stored it.
    """
    metadata = {**envelope.source_metadata, "physical_location": None}
    return _sqlserver(replace(envelope, source_metadata=metadata), rules)


def _lsn(envelope: Envelope) -> object:
    keys = envelope.sort_keys
    lsn: object = envelope.source_metadata.get("lsn")
    return keys[1] if not lsn and len(keys) > 1 else lsn


def _physical(metadata: Mapping[str, Any]) -> str:
    """Return file, page and slot of a row; zeros if the event does not state them."""
    location = metadata.get("physical_location") or _NO_LOCATION
    is_location = isinstance(location, list | tuple) and len(location) == len(_NO_LOCATION)
    if not is_location or not all(isinstance(part, int) and 0 <= part < _U32 for part in location):
        raise _missing("physical_location", location)
    return "".join(f"{part:08x}" for part in location)


def _time_position(envelope: Envelope, place: str, rules: PositionRules) -> Position:
    moment = moment_of(envelope)
    is_first = rules.order_by == OrderBy.TIMESTAMP.value
    return Position(moment, f"{moment} {place}" if is_first else f"{place} {moment}")


def _mongodb(envelope: Envelope, _rules: PositionRules) -> Position:
    second, ordinal = _cluster_time(envelope)
    return Position(second, f"{second} {ordinal}")


def _cluster_time(envelope: Envelope) -> tuple[str, str]:
    """Return second and ordinal; for a backfilled row, second and nanoseconds of the clock."""
    keys = envelope.sort_keys
    if len(keys) < 2:  # noqa: PLR2004  [seconds, ordinal]
        raise _missing("sort_keys", list(keys))
    return _number(keys[0], "sort_keys"), _number(keys[1], "sort_keys")


def _salesforce(envelope: Envelope, _rules: PositionRules) -> Position:
    moment = moment_of(envelope)
    return Position(moment, moment)


def _number(value: object, field: str) -> str:
    """Return an unsigned 64-bit number as sixteen hex digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        value = int(value)
    if type(value) is not int or not 0 <= value < _U64:
        raise _missing(field, value)
    return f"{value:016x}"


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
