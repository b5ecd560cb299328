"""Plain changes of one form, decoded by column, as `RowDecoder.decode_plain` decodes each."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from msgspec import UNSET

from cdc_platform.model.base.timestamps import is_moment
from cdc_platform.model.stream.events import ChangeRun
from cdc_platform.sources.debezium.rows.findings import (
    Findings,
    Metadata,
    is_unsent_in_insert,
    is_unsent_in_update,
)
from cdc_platform.sources.debezium.rows.pairing import Identity
from cdc_platform.sources.debezium.rows.plans import ColumnPlan, TablePlan
from cdc_platform.sources.debezium.rows.row_values import is_readable, key_json, read_values
from cdc_platform.sources.debezium.values.detector import VALUE
from cdc_platform.sources.debezium.wire.envelope import sequences_of
from cdc_platform.sources.debezium.wire.message_contents import (
    DELETE,
    MOD_TYPES,
    READ,
    UPDATE,
    MessageUnusable,
    Op,
)
from cdc_platform.sources.debezium.wire.messages import Arrival, Content
from cdc_platform.sources.debezium.wire.plain_lines import PlainChange, PlainSource
from cdc_platform.sources.debezium.wire.positions import SNAPSHOT, change_ids, change_keys
from cdc_platform.sources.json_codec import write_lines, write_objects

FindingsByPlace = defaultdict[int, Findings]
"""Findings about the changes that may have any, by place."""
Change = tuple[PlainChange, Arrival[Content]]


class Undecidable(ValueError):
    """Some changes cannot be decoded by column; ``places`` has theirs."""

    def __init__(self, places: Collection[int]) -> None:
        super().__init__(places)
        self.places = places


class PlainForm(NamedTuple):
    """Properties of plain changes of one form: their table in the lake and in the database, and its plan.

    ``is_new`` means of inserts that their rows certainly had no other key; ``is_full`` of updates and deletes
    that they have the whole rows before, as with the replica identity FULL, and of inserts that may have had
    another key that their tables have that identity.
    """

    op: Op
    is_new: bool
    is_full: bool
    table: str
    plan: TablePlan
    server: str
    name: str
    schema: str
    source_table: str


@dataclass(frozen=True, slots=True)
class PlainRun(ChangeRun):
    """Plain changes of one form, with their plan and their places as in `Arrival`."""

    plan: TablePlan
    origins: Sequence[str]
    numbers: Sequence[int]
    sent_micros: Sequence[int]
    identities: Sequence[Identity]
    """Of inserted rows that are not certainly new."""


def plain_run(form: PlainForm, changes: Sequence[Change], *, keeps_null: bool) -> PlainRun:
    """Return plain changes of one form.

    With ``keeps_null``, a value that was not sent becomes null instead of being left out.

    Raises:
        Undecidable: some of them cannot be decoded by column.
        MALFORMED: one of them, or more, cannot be decoded.
    """
    plain, arrivals = zip(*changes, strict=True)
    positions = [arrival.position for arrival in arrivals]
    envelopes, keys = [change.envelope for change in plain], [change.key for change in plain]
    sources = [envelope.source for envelope in envelopes]
    orders = [
        None if envelope.transaction is None else envelope.transaction.total_order for envelope in envelopes
    ]
    sequences = sequences_of([source.sequence for source in sources])
    transactions, log_positions = [source.txId for source in sources], [source.lsn for source in sources]
    findings: FindingsByPlace = defaultdict(Findings)
    values = _values(form, [envelope.after for envelope in envelopes], findings, keeps_null=keeps_null)
    source_table = form.server, form.schema, form.source_table
    kind = SNAPSHOT if form.op is READ else ()
    return PlainRun(
        form.table,
        MOD_TYPES[form.op],
        form.plan.column_types,
        _ordering_keys(form.op, plain, positions, sequences, orders),
        change_ids(source_table, kind, transactions, log_positions, orders, keys),
        [""] * len(changes) if form.op is READ else list(map(str, transactions)),
        _moments(sources),
        _keys(form.plan, keys),
        values,
        _old_values(form, [envelope.before for envelope in envelopes]),
        _unavailable(findings, len(changes)),
        _metadata(form, plain, sequences, orders, findings),
        positions,
        form.plan,
        [arrival.origin for arrival in arrivals],
        [arrival.number for arrival in arrivals],
        [arrival.micros for arrival in arrivals],
        ()
        if form.is_new
        else [(form.server, form.name, *place) for place in zip(transactions, log_positions, strict=True)],
    )


def _ordering_keys(
    op: Op,
    changes: Sequence[PlainChange],
    positions: Sequence[int],
    sequences: Sequence[tuple[int | None, int]],
    orders: Sequence[int | None],
) -> list[str]:
    log_positions = [position for _, position in sequences]
    places = [
        position if change.offset is None else change.offset
        for position, change in zip(positions, changes, strict=True)
    ]
    if op is READ:  # before all later writes
        return change_keys(op, log_positions, [0] * len(places), orders, places)
    lsns = [change.envelope.source.commit_lsn for change in changes]
    commits = [
        before if commit is UNSET or commit is None else commit
        for commit, (before, _) in zip(lsns, sequences, strict=True)
    ]
    return change_keys(op, commits, log_positions, orders, places)


def _moments(sources: Sequence[PlainSource]) -> list[int | None]:
    moments = [source.micros for source in sources]
    known_moments = [moment for moment in moments if moment is not None]
    if known_moments and not (is_moment(min(known_moments)) and is_moment(max(known_moments))):
        raise OverflowError("a time is outside the years 1 to 9999")
    return moments


def _keys(plan: TablePlan, keys: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    if plan.may_have_float or any(column.scale is not None for _, column in plan.key_columns):
        return [key_json(plan, key) for key in keys]
    columns = []
    for name, column in plan.key_columns:
        values = [key[name] for key in keys]
        judge = column.detector.judge
        if None in values or not (column.is_always_sent or all(judge(value) is VALUE for value in values)):
            raise ValueError(name)
        columns.append(read_values(column, values))
    names = [name for name, _ in plan.key_columns]
    return write_objects(names, columns, len(keys))


def _values(
    form: PlainForm,
    afters: Sequence[Mapping[str, Any] | None],
    findings: FindingsByPlace,
    *,
    keeps_null: bool,
) -> Sequence[str] | None:
    if form.op is DELETE:
        return None
    rows, plans, single = cast("Sequence[Mapping[str, Any]]", afters), form.plan.value_columns, set[int]()
    names = [name for name in rows[0] if name in plans]
    columns = [_column(form, plans[name], [row[name] for row in rows], findings, single) for name in names]
    if single:
        raise Undecidable(single)
    left_out = () if keeps_null else _unavailable(findings, len(rows))
    return write_objects(names, columns, len(rows), left_out)


def _unavailable(findings: FindingsByPlace, count: int) -> Sequence[tuple[str, ...]]:
    """Return the columns that each change lacks; empty if none lacks one."""
    columns = [tuple(findings[place].unavailable) if place in findings else () for place in range(count)]
    return columns if any(columns) else ()


def _old_values(form: PlainForm, befores: Sequence[Mapping[str, Any] | None]) -> Sequence[str] | None:
    if not form.is_full or form.op not in (UPDATE, DELETE):
        return None
    rows, plans = cast("Sequence[Mapping[str, Any]]", befores), form.plan.value_columns
    names = [name for name in rows[0] if name in plans]
    columns = [read_values(plans[name], [row[name] for row in rows]) for name in names]
    return write_objects(names, columns, len(rows))


def _column(
    form: PlainForm, column: ColumnPlan, values: list[Any], findings: FindingsByPlace, single: set[int]
) -> Sequence[Any]:
    """Return the values of a column in the form of the log, null where they were not sent.

    ``single`` receives the places of values that cannot be decoded by column.
    """
    if not column.is_always_sent:
        for place in column.detector.doubtful_places(values):
            try:
                is_unsent = _is_unsent(form, column, values[place], findings[place])
            except ValueError:
                single.add(place)
                values[place] = None
                continue
            if is_unsent:
                findings[place].unavailable.append(column.name)
                values[place] = None
    if column.has_default:
        for place, value in enumerate(values):
            if column.may_be_null(value):
                findings[place].null_or_default.append(column.name)
    try:
        return read_values(column, values)
    except MessageUnusable:
        single.update(place for place, value in enumerate(values) if not is_readable(column, value))
        return values


def _is_unsent(form: PlainForm, column: ColumnPlan, value: Any, findings: Findings) -> bool:
    """Return whether a value was not sent.

    Raises:
        ValueError: the value is unusable, or another message or the row before shows whether it was sent.
    """
    is_full = form.is_full and form.op is UPDATE
    if is_full and not column.detector.is_marker(value):
        return False
    if is_full or not (form.is_new or column.detector.judge(value) is VALUE):
        raise ValueError(column.name)
    if form.op is UPDATE:
        return is_unsent_in_update(column, value, findings)
    return is_unsent_in_insert(form.is_new, column, value, findings)


def _metadata(
    form: PlainForm,
    changes: Sequence[PlainChange],
    sequences: Sequence[tuple[int | None, int]],
    orders: Sequence[int | None],
    findings: FindingsByPlace,
) -> list[str]:
    op, schema, table = form.op.value, form.schema, form.source_table
    snapshot = "true" if form.op is READ else ""
    facts = [
        Metadata(op, schema, table, change.envelope.source.lsn, sequence, order or 0, snapshot, change.run_id)
        for change, sequence, order in zip(changes, sequences, orders, strict=True)
    ]
    for place, of_row in findings.items():
        facts[place].literal_markers = of_row.literal_markers
        facts[place].null_or_default = of_row.null_or_default
        facts[place].lossy_nulls = of_row.lossy_nulls
    return write_lines(facts)
