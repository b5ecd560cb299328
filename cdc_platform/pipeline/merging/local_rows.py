"""Rows of a table after a patch that this process holds; `spark/tables/merge.py` does the same in SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.schema.table_options import ORDER_KEY, keeps_order
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, REMOVE, UPDATE
from cdc_platform.spark.tables.typed import named

Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LocalNetChanges:
    """A folded patch at hand.

    Args:
        rows: what `fold_changes` or `fold_rows` returns.
        schema: the table's columns.
        has_patches: whether `rows` has the flags of the columns that changes named.
        trusts_inserts: whether what is called born is certainly not in the table, and what is not born is.
    """

    rows: pa.Table
    schema: TableSchema
    has_patches: bool
    trusts_inserts: bool

    @cached_property
    def asked(self) -> pa.Table:
        """The rows whose keys are looked for: those that must be there, where the source is believed."""
        return self.rows.filter(_acts(self.rows, UPDATE, REMOVE)) if self.trusts_inserts else self.rows

    @property
    def touched(self) -> pa.Table:
        """The keys that are looked for in the table."""
        return self.asked.select([column.name for column in self.schema.key_columns])

    @property
    def has_null_keys(self) -> bool:
        """Whether a key column of a row is NULL."""
        return any(self.rows[column.name].null_count for column in self.schema.key_columns)

    @property
    def needed(self) -> Sequence[str]:
        """The columns of which the old values matter."""
        if self.has_patches:
            return [column.name for column in self.schema.value_columns]
        return [ORDER_KEY] if keeps_order(self.schema) else []


def matching(patch: LocalNetChanges, keys: npt.NDArray[np.int64]) -> pa.Table:
    """Return the row of a patch for each key, which are numbered as in `touched`."""
    return patch.asked.take(pa.array(keys))


def is_newer(patch: LocalNetChanges, matched: pa.Table, old: pa.Table) -> Chosen:
    """Return which of the table's rows a patch changes: what comes late, or again, changes nothing.

    Args:
        patch: the patch.
        matched: its row for each of the table's rows.
        old: the needed columns of the table's rows.
    """
    if not keeps_order(patch.schema):
        return np.ones(matched.num_rows, dtype=np.bool_)
    # Patches were folded with all that is newer.
    follows = pc.greater_equal if patch.has_patches else pc.greater
    newer = follows(matched[ORDER_KEY], pc.fill_null(old[ORDER_KEY], "").cast(matched[ORDER_KEY].type))
    return _chosen(newer)


def new_rows(patch: LocalNetChanges, matched: pa.Table, old: pa.Table, kept: Sequence[str] = ()) -> pa.Table:
    """Return what the table's rows become that are not deleted.

    Args:
        patch: the patch.
        matched: its row for each of the table's rows.
        old: the needed columns of the table's rows.
        kept: columns of `old` that stay beside them.
    """
    stays = _acts(matched, UPDATE, APPEND)
    matched, old = matched.filter(stays), old.filter(stays)
    columns = {column.name: matched[column.name] for column in patch.schema.columns}
    if patch.has_patches:
        for column in patch.schema.value_columns:
            name = column.name
            columns[name] = _either(_chosen(matched[named(name)]), matched[name], old[name])
    return pa.table(columns | {name: old[name] for name in kept})


def inserted_rows(patch: LocalNetChanges, found: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows that the table did not have.

    Args:
        patch: the patch.
        found: the numbers of the touched keys that it had.
    """
    if patch.trusts_inserts:
        born = patch.rows.filter(_acts(patch.rows, APPEND))
    else:
        lacks = np.ones(patch.rows.num_rows, dtype=np.bool_)
        lacks[found] = False
        lacking = patch.rows.filter(pa.array(lacks))
        born = lacking.filter(_acts(lacking, UPDATE, APPEND))
    return born.select([column.name for column in patch.schema.columns])


def _acts(rows: pa.Table, *actions: str) -> pa.ChunkedArray:
    return pc.is_in(rows[ACTION], value_set=pa.array(actions))


def _chosen(flags: pa.ChunkedArray) -> Chosen:
    chosen: Chosen = pc.fill_null(flags, False).to_numpy().astype(np.bool_)
    return chosen


def _either(takes_new: Chosen, new: pa.ChunkedArray, old: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return new values where they are chosen, else old ones; `if_else` of Arrow knows not all types."""
    both = pa.chunked_array([*new.chunks, *old.cast(new.type).chunks], new.type)
    places = np.arange(len(new))
    return both.take(pa.array(np.where(takes_new, places, places + len(new))))
