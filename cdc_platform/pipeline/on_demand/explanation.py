"""The provenance of a row, from the change log; no Spark, and the source may be down."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final

from pyiceberg.table import Table

from cdc_platform.errors import RowNotFound, TableNotFound
from cdc_platform.lake.commits.filters import all_of, between, equals, is_any
from cdc_platform.lake.state.control import load_lineage
from cdc_platform.lake.state.cuts import Cut, cuts_since
from cdc_platform.lake.state.quarantine import count_quarantined_records, describe_next_step, has_replays
from cdc_platform.model.base.names import find_table
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.base.stored_texts import understanding
from cdc_platform.model.base.timestamps import OrderPlace, from_datetime, plain_fields, to_rfc3339
from cdc_platform.model.rows.row_key import NANOSECOND_TEXT, KeyColumn, RowKey, parse_key
from cdc_platform.model.rows.row_provenance import (
    LoggedChange,
    RowProvenance,
    RowStep,
    Values,
    read_values,
    trace_provenance,
)
from cdc_platform.model.schema.table_options import DELETED, DELETED_AT, ORDERING_KEY
from cdc_platform.model.schema.table_schema import NANOSECONDS
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.pipeline.on_demand.copied_row import CopiedRow, find_copied_row
from cdc_platform.pipeline.on_demand.former_keys import former_keys
from cdc_platform.pipeline.opened.pipeline import Pipeline

NAMED_ORDINALS: Final = 200
"""Up to this many changes are looked up by their place in the log; more are searched for in a range."""


@dataclass(frozen=True)
class Explanation:
    """A row's provenance, with named partitions and with cuts, which the log does not have.

    ``cuts`` holds for each step the first cut whose tables show it, None before that cut.
    ``quarantined`` counts the table's records in quarantine, which are in no provenance.
    ``copied`` is the row in the table's initial copy, from which the provenance continues.
    """

    table: str
    key: RowKey
    provenance: RowProvenance
    partitions: Mapping[str, str]
    cuts: Mapping[int, Cut | None]
    quarantined: int
    copied: CopiedRow | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values; times are RFC 3339 texts."""
        return {
            "table": self.table,
            "key": self.key.to_fields(),
            "is_deleted": self.provenance.values is None,
            "values": dict(self.provenance.values) if self.provenance.values is not None else None,
            "set_by": dict(self.provenance.set_by),
            "copied_at": to_rfc3339(self.copied.position_micros) if self.copied is not None else None,
            "copied_values": dict(self.copied.values) if self.copied is not None else None,
            "changes": [self._step(step) for step in self.provenance.steps],
            "quarantined_records_of_table": self.quarantined,
        }

    def _step(self, step: RowStep) -> dict[str, Any]:
        change, cut = step.change, self.cuts[step.number]
        return {
            "number": step.number,
            "kind": change.kind.value,
            "commit_timestamp": to_rfc3339(change.commit_micros),
            "transaction_id": change.transaction_id,
            "partition": self.partitions.get(change.partition_token, change.partition_token),
            "partition_token": change.partition_token,
            "record_id": change.record_id,
            "mod_ordinal": change.mod_ordinal,
            "cycle": change.cycle,
            "cut": cut.cut if cut is not None else None,
            "cut_position": to_rfc3339(cut.position_micros) if cut is not None else None,
            "columns": [
                {**plain_fields(column), "has_changed": column.has_changed} for column in step.columns
            ],
        }


def explain_row(pipeline: Pipeline, table: str, key_text: str) -> Explanation:
    """Return the changes that produced a row; see `parse_key` for the text of its key.

    Args:
        pipeline: the pipeline.
        table: name of the table, as at the source or in the lake.
        key_text: the row's key.

    Raises:
        TableNotFound: the lake has no such table.
        RowNotFound: the text is not a key of the table, or neither the log nor an initial copy has the key.
    """
    table, stored_table = _find_table(pipeline, table)
    key = parse_key(table, _key_columns(pipeline, stored_table, table), key_text)
    keys = (key, *_former_keys(pipeline, table, key))
    log = pipeline.lake.system_table(LOG)
    begun_micros = _begun_micros(pipeline, table)
    changes = [
        change
        for change in _read_changes(log, table, _ordinals_of_keys(log, table, keys), _order(pipeline, table))
        if change.commit_micros >= begun_micros
    ]
    changes = [_named_in_lake(pipeline, table, change) for change in _in_order(pipeline, changes)]
    copied_row = find_copied_row(pipeline, table, keys)
    if copied_row is not None and copied_row.position_micros < begun_micros:
        copied_row = None
    if copied_row is not None:
        place = (copied_row.position_micros, "")
        copied_row = replace(copied_row, values=_lake_values(pipeline, table, copied_row.values, place))
        # The copy includes earlier commits.
        changes = [change for change in changes if change.commit_micros > copied_row.position_micros]
    if not changes and copied_row is None:
        since = f" since it was recreated at {to_rfc3339(begun_micros)}" if begun_micros else ""
        raise RowNotFound(f"The change log has no change of this key of `{table}`{since}: {key.to_json()}")
    columns = _value_columns(pipeline, table, key)
    provenance = trace_provenance(changes, columns, copied_row.values if copied_row is not None else None)
    lineage = load_lineage(pipeline.lake)
    partitions = lineage.partitions.values() if lineage is not None else ()
    return Explanation(
        table=table,
        key=key,
        provenance=provenance,
        partitions={partition.token: partition.key for partition in partitions},
        cuts=_first_cuts(pipeline, table, provenance.steps),
        quarantined=count_quarantined_records(pipeline.lake, table),
        copied=copied_row,
    )


def _named_in_lake(pipeline: Pipeline, table: str, change: LoggedChange) -> LoggedChange:
    """Return a change with the lake's names of its columns: another one may have a name by now."""
    place = (change.commit_micros, change.ordering_key)
    values = _lake_values(pipeline, table, change.new_values, place)
    # Where events come in any order, an update sets all columns that it does not leave out: see `LogColumns`.
    kept = () if pipeline.capabilities.comes_in_order else change.left_out
    left_out = _lake_values(pipeline, table, dict.fromkeys(kept), place)
    return replace(change, new_values=values, left_out=frozenset(left_out))


def _lake_values(pipeline: Pipeline, table: str, values: Values, place: OrderPlace) -> Values:
    columns = pipeline.schema_history.tables[table]
    return {columns.lake_name_at(name, place): value for name, value in values.items()}


def _in_order(pipeline: Pipeline, changes: list[LoggedChange]) -> list[LoggedChange]:
    """Return changes in the order of the source, without truncates before the first other change."""
    if not pipeline.capabilities.comes_in_order:
        return sorted(changes, key=lambda change: change.ordering_key)
    begins = (n for n, change in enumerate(changes) if change.kind is not ChangeKind.TRUNCATE)
    return changes[next(begins, len(changes)) :]


def _begun_micros(pipeline: Pipeline, table: str) -> int:
    """Return when the table was last recreated: earlier changes belong to other rows."""
    columns = pipeline.schema_history.tables.get(table)
    start = columns.last_beginning if columns is not None else None
    return start.micros if start is not None and start.micros is not None else 0


def _key_columns(pipeline: Pipeline, stored_table: Table, table: str) -> tuple[KeyColumn, ...]:
    fields = {field.name: field for field in stored_table.schema().fields}
    return tuple(
        KeyColumn(
            column.name,
            NANOSECOND_TEXT if column.type.annotation == NANOSECONDS else str(fields[column.name].field_type),
        )
        for column in pipeline.schema_history.tables[table].schema.key_columns
        if column.name in fields
    )


def _value_columns(pipeline: Pipeline, table: str, key: RowKey) -> list[str]:
    """Return the names of the value columns now, as the source's records have them."""
    names = [column.name for column in pipeline.schema_history.tables[table].schema.columns]
    keys = {column.name for column in key.columns}
    return [name for name in names if name not in {*keys, DELETED, DELETED_AT, ORDERING_KEY}]


def _find_table(pipeline: Pipeline, name: str) -> tuple[str, Table]:
    """Return the source's name of a table, and the table."""
    table_names = pipeline.present_tables
    table = find_table(name, table_names)
    stored_table = pipeline.lake.table(table) if table is not None else None
    if table is None or stored_table is None:
        names = ", ".join(table_names) or f"none yet; {describe_next_step(pipeline.lake)}"
        raise TableNotFound(f"The lake has no table `{name}` of pipeline `{pipeline.name}`. It has: {names}")
    return table, stored_table


def _former_keys(pipeline: Pipeline, table: str, key: RowKey) -> tuple[RowKey, ...]:
    columns = pipeline.schema_history.tables.get(table)
    return former_keys(columns, key) if columns is not None and columns.has_retyped_key else ()


def _ordinals_of_keys(log: Table, table: str, keys: Sequence[RowKey]) -> set[int]:
    """Return the ordinals of the changes of a key, in each spelling of its columns' types."""
    truncates = all_of(equals("table_name", table), equals("change_kind", ChangeKind.TRUNCATE.value))
    ordinals = set(log.scan(truncates, selected_fields=("ordinal",)).to_arrow()["ordinal"].to_pylist())
    return ordinals.union(*(_ordinals_of_key(log, table, key) for key in keys))


def _ordinals_of_key(log: Table, table: str, key: RowKey) -> set[int]:
    """Return the ordinals of a key's changes; any spelling of the key counts if no usual one matches."""
    of_table = equals("table_name", table)
    likely = all_of(of_table, is_any("keys", key.spellings()))
    ordinals = log.scan(likely, selected_fields=("ordinal",)).to_arrow()["ordinal"].to_pylist()
    if ordinals:
        return set(ordinals)
    every = log.scan(of_table, selected_fields=("ordinal", "keys")).to_arrow_batch_reader()
    with understanding(LOG, f"the keys of `{table}`"):
        return {row["ordinal"] for batch in every for row in batch.to_pylist() if key.is_same(row["keys"])}


def _order(pipeline: Pipeline, table: str) -> str:
    """Return the log's column that orders a table's changes."""
    is_late = not pipeline.capabilities.comes_in_order or has_replays(pipeline.lake, table)
    return "ordering_key" if is_late else "ordinal"


def _read_changes(log: Table, table: str, ordinals: Collection[int], order: str) -> list[LoggedChange]:
    if not ordinals:
        return []
    # The log is sorted by ordinal, so most of its files are skipped.
    where = all_of(equals("table_name", table), between("ordinal", min(ordinals), max(ordinals)))
    if len(ordinals) <= NAMED_ORDINALS:
        where = all_of(where, is_any("ordinal", ordinals))
    rows = [
        row
        for batch in log.scan(where).to_arrow_batch_reader()
        for row in batch.to_pylist()
        if row["ordinal"] in ordinals
    ]
    with understanding(LOG, f"the changes of `{table}`"):
        return [_as_change(row) for row in sorted(rows, key=itemgetter(order))]


def _as_change(row: Mapping[str, Any]) -> LoggedChange:
    left_out = () if row["is_whole_row"] else row.get("unavailable_columns") or ()
    values = read_values(row["new_values"])
    return LoggedChange(
        kind=ChangeKind(row["change_kind"]),
        commit_micros=from_datetime(row["commit_timestamp"]),
        transaction_id=row["transaction_id"],
        partition_token=row["partition_token"],
        record_id=row["record_id"],
        mod_ordinal=row["mod_ordinal"],
        cycle=row["cycle"],
        ordinal=row["ordinal"],
        new_values={name: value for name, value in values.items() if name not in left_out},
        is_whole_row=row["is_whole_row"],
        left_out=frozenset(left_out),
        ordering_key=row["ordering_key"],
        previous_keys=row["previous_keys"],
        source_micros=from_datetime(row["source_timestamp"]) if row.get("source_timestamp") else None,
    )


def _first_cuts(pipeline: Pipeline, table: str, steps: Sequence[RowStep]) -> dict[int, Cut | None]:
    if not steps:
        return {}
    first_cycle = min(step.change.cycle for step in steps)
    cuts = [cut for cut in cuts_since(pipeline.lake, first_cycle) if table in cut.tables]
    return {
        step.number: next((cut for cut in cuts if cut.cycle >= step.change.cycle), None) for step in steps
    }
