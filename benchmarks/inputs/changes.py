"""Seeded tables and changes, and the exact result that applying the changes must have."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.spark.tables.typed_columns import KIND, ORDINAL, flag_of

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Versions = Ints | Mapping[str, Ints]
"""The version of each row, or of each of its columns where partial updates changed only some."""

FIRST_MOMENT_MICROS = 1_700_000_000_000_000
INSERT, UPDATE, DELETE = 0, 1, 2
KINDS = ("insert", "update", "delete")
ROWS_PER_FILE = 2_500_000

TABLE = TableSchema(
    "accounts",
    tuple(
        Column(name, ColumnType(code), is_primary_key=name == "id", ordinal=ordinal)
        for ordinal, (name, code) in enumerate(
            [
                ("id", "INT64"),
                ("owner", "STRING"),
                ("balance", "INT64"),
                ("visits", "INT64"),
                ("status", "STRING"),
                ("updated_at", "TIMESTAMP"),
            ],
            start=1,
        )
    ),
)


@dataclass(frozen=True)
class Checksum:
    """Row count and exact sums of a table: integers only, so that the order of adding does not matter."""

    rows: int
    ids: int
    owners: int
    balances: int
    visits: int
    statuses: int
    moments: int


NOTHING = Checksum(0, 0, 0, 0, 0, 0, 0)

CHECKSUM_SQL = (
    "SELECT count(*) AS `rows`, sum(id) AS ids, sum(CAST(substr(owner, 7) AS BIGINT)) AS owners, "
    "sum(balance) AS balances, sum(visits) AS visits, sum(CAST(substr(status, 8) AS BIGINT)) AS statuses, "
    f"sum(unix_micros(updated_at) - {FIRST_MOMENT_MICROS}) AS moments FROM {{table}}"
)
"""Spark's way to the same checksum."""


def value_columns(ids: Ints, versions: Versions) -> dict[str, Ints]:
    """Return the numbers behind a row's columns: pure functions of its id and the column's version."""
    names = [column.name for column in TABLE.value_columns]
    of_column = versions if isinstance(versions, Mapping) else dict.fromkeys(names, versions)
    return {
        "owner": _mixed(ids, of_column["owner"]) % 5_000_000,
        "balance": _mixed(ids, of_column["balance"]) % 200_000 - 100_000,
        "visits": of_column["visits"],
        "status": _mixed(ids, of_column["status"]) % 7,
        "updated_at": of_column["updated_at"] * 1_000 + ids % 1_000,
    }


def _mixed(ids: Ints, versions: Ints) -> Ints:
    return (ids * 1_000_003 + versions * 7_919) % 1_000_000_007


def arrow_columns(ids: Ints, versions: Ints) -> dict[str, pa.Array]:
    """Return the columns of the benchmark's table."""
    numbers = value_columns(ids, versions)
    moments = pa.array(numbers["updated_at"] + FIRST_MOMENT_MICROS)
    return {
        "id": pa.array(ids),
        "owner": pa.array(np.char.add("owner-", numbers["owner"].astype("U7"))),
        "balance": pa.array(numbers["balance"]),
        "visits": pa.array(numbers["visits"]),
        "status": pa.array(np.char.add("status-", numbers["status"].astype("U1"))),
        "updated_at": moments.cast(pa.timestamp("us", tz="UTC")),
    }


def checksum_of(ids: Ints, versions: Versions) -> Checksum:
    """Return the checksum of the rows with these ids and versions."""
    numbers = value_columns(ids, versions)
    sums = (numbers[name] for name in ("owner", "balance", "visits", "status", "updated_at"))
    return Checksum(len(ids), int(ids.sum()), *(int(column.sum()) for column in sums))


def difference(base: Checksum, removed: Checksum, added: Checksum) -> Checksum:
    """Return the checksum after rows were taken out and others put in."""
    parts = zip(vars(base).values(), vars(removed).values(), vars(added).values(), strict=True)
    return Checksum(*(before - out + new for before, out, new in parts))


def write_base(folder: Path, rows: int) -> list[Path]:
    """Write the table before any change, sorted by id, unless it is there; return its files."""
    target = folder / f"base-{rows}"
    if not (target / "_complete").exists():
        target.mkdir(parents=True, exist_ok=True)
        for begin in range(0, rows, ROWS_PER_FILE):
            ids = np.arange(begin, min(begin + ROWS_PER_FILE, rows), dtype=np.int64)
            data = pa.table(arrow_columns(ids, np.zeros_like(ids)))
            pq.write_table(data, target / f"part-{begin:012d}.parquet")
        (target / "_complete").touch()
    return sorted(target.glob("*.parquet"))


def base_checksum(rows: int) -> Checksum:
    """Return the checksum of the table before any change."""
    total = NOTHING
    for begin in range(0, rows, ROWS_PER_FILE):
        ids = np.arange(begin, min(begin + ROWS_PER_FILE, rows), dtype=np.int64)
        total = difference(total, NOTHING, checksum_of(ids, np.zeros_like(ids)))
    return total


@dataclass
class History:
    """A truthful source: it inserts what is not there, and updates and deletes only what is.

    Changes of existing rows spread evenly over a pool of ids, or over its newest share where ``hot``. An
    update names each column with the probability ``named_share``, and the changes have the flags of the
    columns that they name; without it, they are whole rows without flags.
    """

    rows: int
    seed: int
    pool: int
    hot: bool = False
    named_share: float | None = None

    def __post_init__(self) -> None:
        """Begin with every row at version 0."""
        self.random = np.random.default_rng(self.seed)
        self.naming = np.random.default_rng(self.seed + 1)  # the changes are the same for each share
        low = int(self.rows * 0.95) if self.hot else 0
        size = min(self.pool, self.rows - low)
        self.ids: Ints = np.sort(self.random.choice(self.rows - low, size, replace=False)) + low
        self.alive = np.ones(size, dtype=np.bool_)
        names = [column.name for column in TABLE.value_columns]
        self.versions: dict[str, Ints] = {name: np.zeros(size, dtype=np.int64) for name in names}
        self.next_id = self.rows
        self.ordinal = 0
        self.checksum = base_checksum(self.rows)

    def take(self, changes: int) -> pa.Table:
        """Return the next changes (about 7 in 10 update, 2 insert, 1 deletes), shuffled."""
        fresh = changes // 5
        slots = self.random.integers(0, len(self.ids), changes - fresh)
        places = self.random.permutation(changes)
        of_fresh, of_pool = np.sort(places[:fresh]), np.sort(places[fresh:])
        ids, kinds = np.empty(changes, dtype=np.int64), np.full(changes, INSERT, dtype=np.int64)
        ids[of_fresh] = np.arange(self.next_id, self.next_id + fresh)
        ids[of_pool] = self.ids[slots]
        ordinals = np.arange(self.ordinal, self.ordinal + changes, dtype=np.int64)

        rows = np.unique(slots)
        removed = self._state(rows)
        kinds[of_pool] = self._play(slots)
        flags = self._name_columns(kinds)
        for name, versions in self.versions.items():
            names = flags[name][of_pool]
            versions[slots[names]] = ordinals[of_pool][names] + 1  # the last change of a slot wins
        added = checksum_of(ids[of_fresh], ordinals[of_fresh] + 1)
        self.checksum = difference(difference(self.checksum, removed, self._state(rows)), NOTHING, added)

        self.next_id += fresh
        self.ordinal += changes
        shuffle = self.random.permutation(changes)
        changed = _changes_table(ids[shuffle], kinds[shuffle], ordinals[shuffle])
        if self.named_share is None:
            return changed
        return _with_flags(changed, {name: named[shuffle] for name, named in flags.items()})

    def _name_columns(self, kinds: Ints) -> dict[str, Flags]:
        """Return for each column which changes name it: inserts and deletes set all."""
        share = 1.0 if self.named_share is None else self.named_share
        return {name: (kinds != UPDATE) | (self.naming.random(len(kinds)) < share) for name in self.versions}

    def _state(self, slots: Ints) -> Checksum:
        """Return the checksum of those rows of the pool that exist."""
        exist = slots[self.alive[slots]]
        versions = {name: of_slots[exist] for name, of_slots in self.versions.items()}
        return checksum_of(self.ids[exist], versions)

    def _play(self, slots: Ints) -> Ints:
        """Return what each change does: one in eight deletes, and what follows a delete inserts."""
        wants_delete = self.random.random(len(slots)) < 1 / 8
        kinds = np.empty(len(slots), dtype=np.int64)
        for index, (slot, wish) in enumerate(zip(slots.tolist(), wants_delete.tolist(), strict=True)):
            if not self.alive[slot]:
                kinds[index], self.alive[slot] = INSERT, True
            elif wish:
                kinds[index], self.alive[slot] = DELETE, False
            else:
                kinds[index] = UPDATE
        return kinds


def _changes_table(ids: Ints, kinds: Ints, ordinals: Ints) -> pa.Table:
    names = pa.array(np.array(KINDS, dtype=object)[kinds], pa.string())
    return pa.table({KIND: names, ORDINAL: pa.array(ordinals), **arrow_columns(ids, ordinals + 1)})


def _with_flags(changed: pa.Table, flags: Mapping[str, Flags]) -> pa.Table:
    """Return changes with only the values of the columns that they name, and the flags of these columns."""
    for name, named in flags.items():
        is_named = pa.array(named)
        values = pc.if_else(is_named, changed[name], None)
        changed = changed.set_column(changed.schema.get_field_index(name), name, values)
        changed = changed.append_column(flag_of(name), is_named)
    return changed
