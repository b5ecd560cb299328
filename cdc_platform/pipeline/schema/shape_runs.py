"""Shapes of records in commit order, reduced to the ends of each run of records with the same columns."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.base.timestamps import OrderPlace
from cdc_platform.model.schema.observed_columns import ObservedColumn
from cdc_platform.model.schema.table_schema import ColumnType
from cdc_platform.pipeline.reading.window_content import SHAPE, ShapeFacts, ShapeKey, keys_of

Ints = npt.NDArray[np.int64]
Columns = Mapping[str, ObservedColumn]
ORDER: Final = "record_order"
_END: Final = pa.schema(
    [*((name, pa.string()) for name in SHAPE), ("record_timestamp", pa.int64()), (ORDER, pa.string())]
)


class ShapeRuns:
    """Collects the places at which records had a shape; a backlog has millions, so they stay in columns."""

    def __init__(self) -> None:
        self._numbers: dict[ShapeKey, int] = {}
        self._moments: list[Ints] = []
        self._orders: list[pa.Array] = []
        self._shapes: list[Ints] = []

    def add(self, batch: pa.Table) -> None:
        """Add the records of a batch, which may be in any order; without `record_order` moments count."""
        has_order = ORDER in batch.column_names
        distinct = batch.group_by([*SHAPE, "record_timestamp", *([ORDER] if has_order else [])]).aggregate([])
        if distinct.num_rows:
            self._moments.append(distinct["record_timestamp"].cast(pa.int64()).to_numpy())
            orders = distinct[ORDER] if has_order else pa.repeat("", distinct.num_rows)
            self._orders.append(pc.fill_null(orders, ""))
            self._shapes.append(self._number(distinct))

    def add_facts(self, shapes: Mapping[ShapeKey, ShapeFacts]) -> None:
        """Add all records by facts about their shapes: the first and the last record of each."""
        rows = [
            dict(zip(_END.names, (*key, *place), strict=True))
            for key, facts in shapes.items()
            for place in (_first(facts), _last(facts))
        ]
        self.add(pa.Table.from_pylist(rows, _END))

    def _number(self, rows: pa.Table) -> Ints:
        """Return the number of each row's shape."""
        codes = np.zeros(rows.num_rows, dtype=np.int64)
        for name in SHAPE:
            texts = rows[name].cast(pa.string()).combine_chunks()
            dictionary = pc.dictionary_encode(texts, null_encoding="encode")
            codes = codes * len(dictionary.dictionary) + dictionary.indices.to_numpy()
        _, first, places = np.unique(codes, return_index=True, return_inverse=True)
        # In order of arrival
        in_order = np.argsort(first)
        keys = keys_of(rows.select(list(SHAPE)).take(pa.array(first[in_order])))
        numbers = np.empty(len(first), dtype=np.int64)
        numbers[in_order] = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        return numbers[places]

    def ends(self, counts: Callable[[ShapeKey], bool]) -> Iterator[tuple[ShapeKey, OrderPlace]]:
        """Yield shapes and places, table by table and in order.

        A run ends where the columns of a table's records change. The first and the last record of each shape
        in it stay, because the records between them show nothing more.

        Args:
            counts: whether the records of a shape count.
        """
        keys = list(filter(counts, self._numbers))
        if not keys:
            return
        tables, columns = (
            {part: place for place, part in enumerate(dict.fromkeys(map(of, keys)))}
            for of in (_table_of, _columns_of)
        )
        of_number = np.full((3, len(self._numbers)), -1, dtype=np.int64)
        for place, key in enumerate(keys):
            of_number[:, self._numbers[key]] = place, tables[_table_of(key)], columns[_columns_of(key)]
        shapes = of_number[:, np.concatenate(self._shapes)]
        is_counted = shapes[0] >= 0
        shape, table, column = shapes[:, is_counted]
        moments = np.concatenate(self._moments)[is_counted]
        orders = pa.chunked_array(self._orders, pa.string()).filter(pa.array(is_counted))
        rows = pa.table({"table": table, "moment": moments, "order": orders, "shape": shape})
        order = pc.sort_indices(rows, [(name, "ascending") for name in rows.column_names])
        orders = orders.take(order)
        shape, column, moments = (values[order.to_numpy()] for values in (shape, column, moments))
        # Columns of different tables count as different ones.
        runs = np.cumsum(np.diff(column, prepend=column[:1]) != 0)
        for place in _ends_of(runs * len(keys) + shape):
            yield keys[shape[place]], (int(moments[place]), orders[place].as_py())


def show_all_runs(shapes: Iterable[tuple[Columns, ShapeFacts]], *, comes_in_order: bool) -> bool:
    """Return whether facts about the shapes of a table's records show the ends of all runs.

    They do if the records have the same columns. They also do for events of one cycle that come in no order,
    or whose shapes follow each other: only where a column's type changes, their order matters.

    Args:
        shapes: the columns of each shape, and the facts about its records.
        comes_in_order: whether the source sends changes in order.
    """
    sorted_shapes = sorted(shapes, key=lambda shape: _first(shape[1]))
    if all(columns == sorted_shapes[0][0] for columns, _ in sorted_shapes):
        return True
    if not all(facts.last_order and facts.first_micros == facts.last_micros for _, facts in sorted_shapes):
        return False
    return not comes_in_order or not _alternate(sorted_shapes)


def _alternate(shapes: Iterable[tuple[Columns, ShapeFacts]]) -> bool:
    """Return whether a column has a type again after it had another one, or may have."""
    ends = defaultdict[str, dict[ColumnType, OrderPlace]](dict)
    for columns, facts in shapes:
        for name, column in columns.items():
            if any(end >= _first(facts) for kind, end in ends[name].items() if kind != column.type):
                return True
            ends[name][column.type] = max(_last(facts), ends[name].get(column.type, _last(facts)))
    return False


def _first(facts: ShapeFacts) -> OrderPlace:
    return facts.first_micros, facts.first_order


def _last(facts: ShapeFacts) -> OrderPlace:
    return facts.last_micros, facts.last_order


def _ends_of(groups: Ints) -> Ints:
    """Return the places of the first and the last member of each group, in order."""
    first = np.unique(groups, return_index=True)[1]
    last = len(groups) - 1 - np.unique(groups[::-1], return_index=True)[1]
    return np.unique(np.concatenate([first, last]))


def _table_of(key: ShapeKey) -> str | None:
    return key[0]


def _columns_of(key: ShapeKey) -> tuple[str | None, str | None]:
    return key[0], key[3]
