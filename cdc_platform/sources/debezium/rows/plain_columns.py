"""Plain updates of one form, decoded by column, as `RowDecoder.decode_plain` decodes each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from cdc_platform.model.base.timestamps import is_moment
from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.rows.findings import Findings, Metadata, is_unavailable
from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.rows.row_keys import key_json
from cdc_platform.sources.debezium.rows.row_values import read_values
from cdc_platform.sources.debezium.wire.envelope import sequences_of
from cdc_platform.sources.debezium.wire.messages import RawMessage
from cdc_platform.sources.debezium.wire.plain_lines import PlainSource, PlainUpdate
from cdc_platform.sources.debezium.wire.positions import change_ids, change_keys
from cdc_platform.sources.json_codec import write_lines

FoundByPlace = dict[int, Findings]
"""Findings about the events that have any, by place."""
_NONE: Final = Findings()


Arrived = tuple[bytes | RawMessage, str, int, int, int, str]
"""A line or message that has arrived, with its place: the other fields of `Arrival`, in their order."""
Update = tuple[PlainUpdate, Arrived]


class PlainForm(NamedTuple):
    """What plain updates of one form share: their table in the lake and in the database, and its plan."""

    table: str
    plan: TablePlan
    server: str
    name: str
    schema: str
    source_table: str


@dataclass(frozen=True, slots=True)
class PlainRun:
    """Plain updates of one form, by column as in `SourceEvent`, with their places as in `Arrival`."""

    form: PlainForm
    ordering_keys: Sequence[str]
    event_ids: Sequence[str]
    transaction_ids: Sequence[str]
    micros: Sequence[int | None]
    keys: Sequence[str]
    new_values: Sequence[str]
    unavailable_columns: Sequence[tuple[str, ...]]
    metadata: Sequence[str]
    positions: Sequence[int]
    origins: Sequence[str]
    numbers: Sequence[int]
    sent_micros: Sequence[int]

    def events(self) -> Iterator[SourceEvent]:
        """Yield the updates one by one."""
        table, types = self.form.table, self.form.plan.column_types
        columns = (
            *(self.ordering_keys, self.event_ids, self.transaction_ids, self.micros, self.keys),
            *(self.new_values, self.unavailable_columns, self.metadata, self.positions),
        )
        for order, identity, transaction, micros, key, values, unavailable, metadata, position in zip(
            *columns, strict=True
        ):
            yield SourceEvent(
                *(table, ModType.UPDATE, order, identity, transaction, micros, types, key, values),
                unavailable_columns=unavailable,
                metadata=metadata,
                position=position,
            )


def plain_run(form: PlainForm, updates: Sequence[Update], *, keeps_null: bool) -> PlainRun:
    """Return plain updates of one form.

    Args:
        form: their form.
        updates: the updates.
        keeps_null: whether a value that was not sent becomes null instead of being left out.

    Raises:
        MALFORMED: one of them, or more, cannot be decoded.
    """
    plain, arrived = zip(*updates, strict=True)
    _, origins, positions, sent_micros, numbers, _ = zip(*arrived, strict=True)
    envelopes, keys = [update.envelope for update in plain], [update.key for update in plain]
    sources = [envelope.source for envelope in envelopes]
    orders = [
        None if envelope.transaction is None else envelope.transaction.total_order for envelope in envelopes
    ]
    sequences = sequences_of([source.sequence for source in sources])
    commits = [
        before if source.commit_lsn is UNSET or source.commit_lsn is None else source.commit_lsn
        for source, (before, _) in zip(sources, sequences, strict=True)
    ]
    places = [
        position if update.offset is None else update.offset
        for position, update in zip(positions, plain, strict=True)
    ]
    transactions = [source.txId for source in sources]
    log_positions = [source.lsn for source in sources]
    micros = [_micros(source) for source in sources]
    _check_moments(micros)
    found: FoundByPlace = {}
    values = _values(form.plan, [envelope.after for envelope in envelopes], found, keeps_null=keeps_null)
    none = ()
    return PlainRun(
        form,
        change_keys(commits, [change for _, change in sequences], orders, places),
        change_ids((form.server, form.schema, form.source_table), transactions, log_positions, orders, keys),
        list(map(str, transactions)),
        micros,
        _keys(form.plan, keys),
        values,
        [tuple(found[place].unavailable) if place in found else none for place in range(len(updates))],
        _metadata(form, plain, log_positions, sequences, orders, found),
        positions,
        origins,
        numbers,
        sent_micros,
    )


def _micros(source: PlainSource) -> int | None:
    return source.ts_us if source.ts_us is not None or source.ts_ms is None else source.ts_ms * 1000


def _check_moments(micros: Sequence[int | None]) -> None:
    known = [moment for moment in micros if moment is not None]
    if known and not (is_moment(min(known)) and is_moment(max(known))):
        raise OverflowError("a time is outside the years 1 to 9999")


def _keys(plan: TablePlan, keys: Sequence[Mapping[str, Any]]) -> list[str]:
    if plan.may_have_float or any(column.scale is not None for _, column in plan.key_columns):
        return [key_json(plan, key) for key in keys]
    columns = []
    for name, column in plan.key_columns:
        values = [key[name] for key in keys]
        if None in values or (not column.is_always_sent and any(map(column.detector.is_marker, values))):
            raise ValueError(name)
        columns.append(read_values(column, values))
    names = [name for name, _ in plan.key_columns]
    return write_lines([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])


def _values(
    plan: TablePlan, rows: Sequence[Mapping[str, Any]], found: FoundByPlace, *, keeps_null: bool
) -> list[str]:
    names = [name for name in rows[0] if name in plan.others]
    if not names:
        return ["{}"] * len(rows)
    columns = [_column(plan.others[name], [row[name] for row in rows], found) for name in names]
    objects = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not keeps_null:
        for place, findings in found.items():
            for name in findings.unavailable:
                del objects[place][name]
    return write_lines(objects)


def _column(column: ColumnPlan, values: list[Any], found: FoundByPlace) -> Sequence[Any]:
    """Return the values of a column in the form of the log, null where they were not sent."""
    if not column.is_always_sent:
        for place in column.detector.doubtful(values):
            findings = Findings()
            if is_unavailable(column, values[place], findings):
                findings.unavailable.append(column.name)
                values[place] = None
            if findings != _NONE:
                _add(found, place, findings)
    if column.has_default:
        for place, value in enumerate(values):
            if column.may_be_null(value):
                _add(found, place, Findings(null_or_default=[column.name]))
    return read_values(column, values)


def _add(found: FoundByPlace, place: int, findings: Findings) -> None:
    known = found.setdefault(place, Findings())
    known.unavailable += findings.unavailable
    known.null_or_default += findings.null_or_default
    known.lossy_nulls += findings.lossy_nulls


def _metadata(
    form: PlainForm,
    updates: Sequence[PlainUpdate],
    positions: Sequence[int],
    sequences: Sequence[tuple[int | None, int | None]],
    orders: Sequence[int | None],
    found: FoundByPlace,
) -> list[str]:
    facts = [
        Metadata(
            *("u", form.schema, form.source_table, position, sequence, order or 0, ""),
            update.run_id,
        )
        for update, position, sequence, order in zip(updates, positions, sequences, orders, strict=True)
    ]
    for place, findings in found.items():
        facts[place].null_or_default = findings.null_or_default
        facts[place].lossy_nulls = findings.lossy_nulls
    return write_lines(facts)
