"""Shapes of records in commit order, reduced to the ends of each run of records with the same columns."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.pipeline.reading.window_content import SHAPE, ShapeFacts, ShapeKey, keys_of

Ints = npt.NDArray[np.int64]
_END: Final = pa.schema([*((name, pa.string()) for name in SHAPE), ("record_timestamp", pa.int64())])


class ShapeRuns:
    """Collects the times at which records had a shape; a backlog has millions, so they stay in columns."""

    def __init__(self) -> None:
        self._numbers: dict[ShapeKey, int] = {}
        self._moments: list[Ints] = []
        self._shapes: list[Ints] = []

    def add(self, batch: pa.Table) -> None:
        """Add the records of a batch, which may be in any order."""
        distinct = batch.group_by([*SHAPE, "record_timestamp"]).aggregate([])
        if distinct.num_rows:
            self._moments.append(distinct["record_timestamp"].cast(pa.int64()).to_numpy())
            self._shapes.append(self._number(distinct))

    def add_facts(self, shapes: Mapping[ShapeKey, ShapeFacts]) -> bool:
        """Add all records by facts about their shapes, and return whether these show the ends of all runs.

        They do for a table whose records all have the same columns, or one time for each shape and an order.
        """
        columns = defaultdict[str | None, set[str | None]](set)
        for table, _, _, text in shapes:
            columns[table].add(text)
        for key, facts in shapes.items():
            is_one_place = bool(facts.first_order) and facts.first_micros == facts.last_micros
            if len(columns[_table_of(key)]) > 1 and not is_one_place:
                return False
        rows = [
            dict(zip(_END.names, (*key, micros), strict=True))
            for key, facts in shapes.items()
            for micros in (facts.first_micros, facts.last_micros)
        ]
        self.add(pa.Table.from_pylist(rows, _END))
        return True

    def _number(self, rows: pa.Table) -> Ints:
        """Return the number of each row's shape."""
        codes = np.zeros(rows.num_rows, dtype=np.int64)
        for name in SHAPE:
            texts = rows[name].cast(pa.string()).combine_chunks()
            encoded = pc.dictionary_encode(texts, null_encoding="encode")
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, first, places = np.unique(codes, return_index=True, return_inverse=True)
        # In order of arrival
        in_order = np.argsort(first)
        keys = keys_of(rows.select(list(SHAPE)).take(pa.array(first[in_order])))
        numbers = np.empty(len(first), dtype=np.int64)
        numbers[in_order] = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        return numbers[places]

    def ends(
        self, counts: Callable[[ShapeKey], bool], order_of: Callable[[ShapeKey], str] = lambda _: ""
    ) -> Iterator[tuple[ShapeKey, int]]:
        """Yield shapes and moments, table by table and in commit order.

        A run ends where the columns of a table's records change. The first and the last record of each shape
        in it stay, because the records between them show nothing more.

        Args:
            counts: whether the records of a shape count.
            order_of: the ordering key of the first record of a shape. Events of a cycle share their time, and
                arrive in any order where tasks read them at once.
        """
        keys = sorted(filter(counts, self._numbers), key=order_of)
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
        moments = np.concatenate(self._moments)[shapes[0] >= 0]
        shape, table, column = shapes[:, shapes[0] >= 0]
        order = np.lexsort((shape, moments, table))
        shape, column, moments = shape[order], column[order], moments[order]
        # Columns of different tables count as different ones.
        runs = np.cumsum(np.diff(column, prepend=column[:1]) != 0)
        for place in _ends_of(runs * len(keys) + shape):
            yield keys[shape[place]], int(moments[place])


def _ends_of(groups: Ints) -> Ints:
    """Return the places of the first and the last member of each group, in order."""
    first = np.unique(groups, return_index=True)[1]
    last = len(groups) - 1 - np.unique(groups[::-1], return_index=True)[1]
    return np.unique(np.concatenate([first, last]))


def _table_of(key: ShapeKey) -> str | None:
    return key[0]


def _columns_of(key: ShapeKey) -> tuple[str | None, str | None]:
    return key[0], key[3]
