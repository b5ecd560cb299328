"""Rows without a key are numbered so that each deletion finds a row that was inserted before it."""

from typing import TYPE_CHECKING

import pytest

from cdc_platform.model.keyless import keyless_keys, keys_text
from cdc_platform.spark.keyless import number_copies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

COLUMNS = "ordinal bigint, table_name string, change_kind string, keys string, unsound boolean"
A, B = (keyless_keys({"n": n}) for n in (1, 2))


def numbered(keys: str, copy: int) -> str:
    """Return a key with its number."""
    return keys_text(keys.split('"')[-2], copy)


def test_copies_are_numbered_across_ticks_and_truncates(spark: "SparkSession") -> None:
    """Numbers go on from the log, begin anew at a truncate, and do not count what cannot enter the log."""
    log = [
        (1, "t", "insert", numbered(B, 1)),
        (2, "t", "truncate", "{}"),
        (3, "t", "snapshot", numbered(A, 1)),
        (4, "t", "insert", numbered(A, 2)),
        (5, "t", "insert", numbered(A, 3)),
        (6, "t", "delete", numbered(A, 3)),
        (7, "u", "insert", numbered(A, 1)),
    ]
    # the change, and the number that it gets
    ticks = [
        ("t", "insert", A, False, 3),
        ("t", "insert", A, True, None),
        ("t", "insert", B, False, 1),
        ("t", "delete", A, False, 3),
        ("t", "delete", A, False, 2),
        ("u", "delete", A, False, 1),
        ("u", "delete", A, False, 0),
        ("u", "insert", A, False, 0),
        ("t", "truncate", "{}", False, None),
        ("t", "insert", A, False, 1),
        ("keyed", "insert", '{"id":1}', False, None),
    ]
    ordered = [(10 + at, table, kind, keys, held) for at, (table, kind, keys, held, _) in enumerate(ticks)]
    found = number_copies(
        spark.createDataFrame(ordered, COLUMNS),
        spark.createDataFrame([(*row, False) for row in log], COLUMNS),
    ).collect()
    assert [10 + at for at in range(len(ticks))] == [row["ordinal"] for row in found]
    for row, (_, _, keys, is_held, copy) in zip(found, ticks, strict=True):
        if not is_held:
            assert row["keys"] == (keys if copy is None else numbered(keys, copy)), row
