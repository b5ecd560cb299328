"""Rows of a table after net changes in this process; `spark/tables/merge.py` does the same in SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.schema.table_options import ORDERING_KEY, keeps_order
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.spark.tables.net_changes import ACTION, APPEND, REMOVE, UPDATE
from cdc_platform.spark.tables.typed_columns import flag_of

RowMask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LocalNetChanges:
    """Net changes in the memory of this process.

    Args:
        rows: the result of `compute_net_changes` or `compute_net_rows`.
        schema: the table's columns.
        has_partial_updates: whether `rows` has the flags of the columns that changes named.
        trusts_inserts: whether inserted keys are certainly not in the table, and all other keys are.
    """

    rows: pa.Table
    schema: TableSchema
    has_partial_updates: bool
    trusts_inserts: bool

    @cached_property
    def lookups(self) -> pa.Table:
        """The rows whose keys are looked up: with trust in the source, only those that must exist."""
        return self.rows.filter(_acts(self.rows, UPDATE, REMOVE)) if self.trusts_inserts else self.rows

    @property
    def touched(self) -> pa.Table:
        """The keys to look up in the table."""
        return self.lookups.select([column.name for column in self.schema.key_columns])

    @property
    def has_null_keys(self) -> bool:
        """Whether a key column of a row is NULL."""
        return any(self.rows[column.name].null_count for column in self.schema.key_columns)

    @cached_property
    def kept_columns(self) -> Sequence[str]:
        """The columns that some net change does not name, so that a row keeps its value."""
        if not self.has_partial_updates:
            return []
        flags = {column.name: self.lookups[flag_of(column.name)] for column in self.schema.value_columns}
        return [name for name, flag in flags.items() if not _to_flags(flag).all()]

    @property
    def read_columns(self) -> Sequence[str]:
        """The columns whose old values matter."""
        ordering = [ORDERING_KEY] if keeps_order(self.schema) else []
        return [*self.kept_columns, *(name for name in ordering if name not in self.kept_columns)]


def matching(net_changes: LocalNetChanges, keys: npt.NDArray[np.int64]) -> pa.Table:
    """Return the net change of each key; keys are numbered as in `touched`."""
    return net_changes.lookups.take(pa.array(keys))


def is_newer(net_changes: LocalNetChanges, changes: pa.Table, rows: pa.Table) -> RowMask:
    """Return which of the table's rows change: late and repeated changes change nothing.

    ``rows`` are the needed columns of the table's rows, and ``changes`` the net change of each.
    """
    if not keeps_order(net_changes.schema):
        return np.ones(changes.num_rows, dtype=np.bool_)
    # Partial updates already include all newer changes.
    compare = pc.greater_equal if net_changes.has_partial_updates else pc.greater
    orders, row_orders = changes[ORDERING_KEY], pc.fill_null(rows[ORDERING_KEY], "")
    return _to_flags(compare(orders, row_orders.cast(orders.type)))


def new_rows(
    net_changes: LocalNetChanges, changes: pa.Table, rows: pa.Table, extra_columns: Sequence[str] = ()
) -> pa.Table:
    """Return the new values of the table's rows that are not deleted.

    Args:
        net_changes: the net changes.
        changes: the net change of each of the table's rows.
        rows: the needed columns of the table's rows.
        extra_columns: further columns of `rows` to keep.
    """
    stays = _acts(changes, UPDATE, APPEND)
    changes, rows = changes.filter(stays), rows.filter(stays)
    columns = {column.name: changes[column.name] for column in net_changes.schema.columns}
    for name in net_changes.kept_columns:
        values = changes[name]
        columns[name] = pc.if_else(
            pc.fill_null(changes[flag_of(name)], False), values, rows[name].cast(values.type)
        )
    return pa.table(columns | {name: rows[name] for name in extra_columns})


def inserted_rows(net_changes: LocalNetChanges, present_keys: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows of net changes that the table did not have.

    ``present_keys`` are the numbers of the touched keys that it had, as in `touched`.
    """
    if net_changes.trusts_inserts:
        rows = net_changes.rows.filter(_acts(net_changes.rows, APPEND))
    else:
        lacks = np.ones(net_changes.rows.num_rows, dtype=np.bool_)
        lacks[present_keys] = False
        absent_rows = net_changes.rows.filter(pa.array(lacks))
        rows = absent_rows.filter(_acts(absent_rows, UPDATE, APPEND))
    return rows.select([column.name for column in net_changes.schema.columns])


def _acts(rows: pa.Table, *actions: str) -> pa.ChunkedArray:
    return pc.is_in(rows[ACTION], value_set=pa.array(actions))


def _to_flags(flags: pa.ChunkedArray) -> RowMask:
    array: RowMask = pc.fill_null(flags, False).to_numpy().astype(np.bool_)
    return array
