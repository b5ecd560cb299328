"""The exact result of a benchmark's changes is that of applying them one by one."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.inputs.changes import TABLE, History, arrow_columns
from benchmarks.measure.tables import checksum_of_batches
from cdc_platform.spark.tables.typed_columns import KIND, ORDINAL, flag_of

ROWS: Final = 2_000
NAMES: Final = [column.name for column in TABLE.columns]


def applied(rows: dict[int, dict[str, Any]], changes: pa.Table) -> None:
    """Apply changes to rows in order; without flags, a change names all columns."""
    for change in changes.sort_by(ORDINAL).to_pylist():
        if change[KIND] == "delete":
            del rows[change["id"]]
            continue
        named = [name for name in NAMES if change.get(flag_of(name), True)]
        rows.setdefault(change["id"], {}).update({name: change[name] for name in named})


@pytest.mark.parametrize("named_share", [None, 1.0, 0.5, 0.0])
def test_the_checksum_follows_every_change(named_share: float | None) -> None:
    """Whole rows and partial updates, over several commits, with keys that change many times."""
    history = History(ROWS, seed=3, pool=200, named_share=named_share)
    first = pa.table(arrow_columns(np.arange(ROWS), np.zeros(ROWS, dtype=np.int64)))
    rows = {row["id"]: row for row in first.to_pylist()}
    for _ in range(2):
        applied(rows, history.take(500))
        table = pa.Table.from_pylist(list(rows.values()), first.schema)
        assert history.checksum == checksum_of_batches(table.to_batches())


def test_a_share_of_the_columns_leaves_the_changes_as_they_are() -> None:
    """Keys, kinds and order are the same, so that seconds compare."""
    whole, partial = (History(ROWS, 3, 200, named_share=share).take(500) for share in (None, 0.5))
    same = ["id", KIND, ORDINAL]
    assert whole.select(same).equals(partial.select(same))
