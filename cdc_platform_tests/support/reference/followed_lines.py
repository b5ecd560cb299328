"""Key chains of a batch, followed without Spark: what properties are shown of many histories with."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.rows.resolution import Link, RowId, key_chains_of
from cdc_platform.model.stream.records import ChangeKind
from cdc_platform.pipeline.completing.key_chains import (
    CHANGE_COLUMNS,
    KEY_CHAIN,
    LINE,
    LINE_ORDER,
    LOGGED_MICROS,
    REST,
    SOURCE_PLACE,
    ChainCompleter,
)
from cdc_platform.spark.log.ordered_rows import by_table, ids_of, lack_values

LookUp = Callable[[Collection[RowId]], Sequence[pa.Table]]
"""Returns lines of what the tables have of rows."""
_WHOLE: Final = frozenset({ChangeKind.INSERT.value, ChangeKind.SNAPSHOT.value})


def complete_locally(look_up: LookUp, changes: pa.Table, incomplete: pa.Table) -> pa.Table | None:
    """Return all changes, those of some rows and of all that key changes connect with them completed.

    Args:
        look_up: looks for values that the batch does not have.
        changes: the sound changes of the batch, in their order.
        incomplete: changes of the rows.

    Returns:
        The changes, not in their order any more; None where the log has to be read for them, since the tables
        do not have a row under the key that it had.
    """
    chains = key_chains_of(ids_of(incomplete), _links_of(changes))
    names = pa.array(map(chains.get, ids_of(changes)), pa.string())
    is_incomplete = pc.and_(pc.is_valid(names), lack_values(changes))
    changed = _lines_of(changes, names, is_incomplete)
    stored = [_with_chains(lines, chains) for lines in look_up(_needed(changed))]
    lines = pa.concat_tables([changed, *stored], promote_options="default")
    lines = lines.append_column(SOURCE_PLACE, pa.repeat("", lines.num_rows))
    lines = lines.append_column(LOGGED_MICROS, pa.nulls(lines.num_rows, pa.int64()))
    lines = lines.select([*LINE, REST]).sort_by([(name, "ascending") for name in LINE_ORDER])
    truncates = changes.filter(pc.equal(changes["change_kind"], ChangeKind.TRUNCATE.value))
    completer = ChainCompleter(tuple(changes.column_names), by_table(truncates, "ordinal"), {})
    # A struct that is null has no values in fields that may not be null.
    schema = pa.schema([field.with_nullable(True) for field in changes.schema])
    completed = pa.Table.from_batches(completer(lines.to_batches()), schema)
    if pc.any(pc.and_(lack_values(completed), pc.is_valid(completed["previous_keys"]))).as_py():
        return None
    unchanged = changes.filter(pc.invert(is_incomplete))
    return pa.concat_tables([unchanged, completed], promote_options="default")


def _links_of(changes: pa.Table) -> list[Link]:
    moves = changes.filter(pc.is_valid(changes["previous_keys"]))
    former = zip(moves["table_name"].to_pylist(), moves["previous_keys"].to_pylist(), strict=True)
    return list(zip(ids_of(moves), former, strict=True))


def _lines_of(changes: pa.Table, chains: pa.Array, is_incomplete: pa.ChunkedArray) -> pa.Table:
    """Return lines of the changes that have a key chain; `rest` is there where one is to be completed."""
    fields = [field for field in changes.schema if field.name not in CHANGE_COLUMNS]
    columns = [changes[field.name].combine_chunks() for field in fields]
    rest = pa.StructArray.from_arrays(columns, fields=fields, mask=pc.invert(is_incomplete).combine_chunks())
    return changes.append_column(REST, rest).append_column(KEY_CHAIN, chains).filter(pc.is_valid(chains))


def _needed(changed: pa.Table) -> set[RowId]:
    """Return the rows whose values are looked for before any change of the batch has them all."""
    row_ids, origins = set[RowId](), set[RowId]()
    columns = (changed[name].to_pylist() for name in ("table_name", "keys", "previous_keys", "change_kind"))
    for table, keys, previous, kind, lacks in zip(*columns, lack_values(changed).to_pylist(), strict=True):
        origin = (table, keys if previous is None else previous)
        if lacks and origin not in row_ids:
            origins.add(origin)
        elif kind in _WHOLE and not lacks:
            row_ids.add((table, keys))
    return origins


def _with_chains(lines: pa.Table, chains: Mapping[RowId, str]) -> pa.Table:
    return lines.append_column(KEY_CHAIN, pa.array([chains[row_id] for row_id in ids_of(lines)], pa.string()))
