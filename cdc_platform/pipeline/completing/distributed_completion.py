"""Completion of changes: one query finds the lines of their key chains, which are then processed in order.

For many changes, Spark's tasks process separate chains; for few changes, this process does.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_platform.model.rows.resolution import Link, RowId, key_chains_of
from cdc_platform.pipeline.completing.key_chains import (
    CHANGE_COLUMNS,
    KEY_CHAIN,
    LINE_ORDER,
    LOGGED_MICROS,
    REST,
    SOURCE_PLACE,
    STORED,
    ChainCompleter,
)
from cdc_platform.pipeline.completing.stored_rows import ROW_ID, Lookup, ids_frame, key_chains_frame
from cdc_platform.pipeline.versions.lake_frames import read_log
from cdc_platform.sources.workers import in_worker
from cdc_platform.spark.frames.table_frames import local_frame
from cdc_platform.spark.log.order import IS_TRUNCATE
from cdc_platform.spark.log.unknown_values import LACKS_VALUES

MAX_STORED_BYTES: Final = 64 * 1024**2
"""Maximum bytes of stored values that this process gets; each row may have an equal share of them."""
_IS_LACKING: Final = f"({LACKS_VALUES} AND table_name IS NOT NULL AND keys IS NOT NULL)"
_IS_LOST: Final = f"previous_keys IS NOT NULL AND {LACKS_VALUES}"
_OF_LOST: Final = [*ROW_ID, "previous_keys", "unavailable_columns"]


@dataclass(frozen=True)
class DistributedCompletion:
    """Completion of the changes of some rows, and of all rows connected to them by key changes.

    The driver gets the keys of rows whose keys change and, if they are few, of rows that lack values, but
    nothing else that grows with the batch.

    Args:
        lookup: lookup of values that the batch does not have.
        keep: returns a cached frame, which is computed only once.
        changes: the sound changes of the batch, persisted.
        truncates: ordinals of the truncates among them, in order, by table.
        is_few: whether each task gets all keys, since there are few rows.
        has_replays: whether changes may be older than those in the log.
    """

    lookup: Lookup
    keep: Callable[[DataFrame], DataFrame]
    changes: DataFrame
    truncates: Mapping[str, Sequence[int]]
    is_few: bool
    has_replays: bool

    def complete(self, incomplete: DataFrame) -> DataFrame:
        """Return all changes, with those of the rows completed, in no particular order.

        Args:
            incomplete: `table_name` and `keys` of the rows, distinct.
        """
        chains = self._key_chains(incomplete)
        if chains.names:
            incomplete = incomplete.union(ids_frame(self.lookup.spark, chains.names)).distinct()
        # Each table is queried for its rows.
        ids = self._broadcast_few(self.keep(incomplete))
        whole_rows = self._complete_rows(ids, chains)
        other_changes = self.changes.where(f"NOT {_IS_LACKING}")
        if not self.lookup.pipeline.capabilities.completes_log:
            rows = self.changes.where(_IS_LACKING)
            other_changes = other_changes.unionByName(rows.join(ids, list(ROW_ID), "left_anti"))
        return other_changes.unionByName(whole_rows)

    def complete_few(self, incomplete: frozenset[RowId]) -> pa.Table | None:
        """Return only the completed changes of rows with known ids; this process gets their lines.

        None if only tasks can complete them: stored values are too large for one process, or rows must be
        followed from the log, which may have any number of changes of each.
        """
        chains = self._key_chains(incomplete)
        ids = incomplete | chains.names.keys()
        lines = self._lines(ids_frame(self.lookup.spark, ids), chains, MAX_STORED_BYTES // len(ids))
        # Few rows need no shuffle and no Python workers, which would take longer.
        in_order = lines.toArrow().sort_by([(name, "ascending") for name in LINE_ORDER])
        is_cut = pc.and_(pc.equal(in_order["change_kind"], STORED), pc.is_null(in_order["new_values"]))
        if pc.any(is_cut).as_py():
            return None
        whole_rows = pa.Table.from_batches(self._completer(chains)(in_order.to_batches()))
        if not chains.names:
            return whole_rows
        lost_rows = self._lost_rows(local_frame(self.lookup.spark, whole_rows.select(_OF_LOST)), chains)
        return None if lost_rows else whole_rows

    def _key_chains(self, incomplete: DataFrame | frozenset[RowId]) -> "_KeyChains":
        links = links_in(self.changes)
        late = late_rows(self._log, self.changes) if self.has_replays else frozenset()
        if late:
            links += links_in(self._log, {table for table, _ in late})
        edges = late.union(*links)
        if not edges:
            return _KeyChains({}, late)
        if isinstance(incomplete, DataFrame):
            connected_ids = ids_frame(self.lookup.spark, edges)
            incomplete = ids_in(incomplete.join(connected_ids, list(ROW_ID), "left_semi"))
        names = key_chains_of(incomplete & edges, links)
        return _KeyChains(names, frozenset(_chains_with(late, names)))

    def _complete_rows(self, ids: DataFrame, chains: "_KeyChains") -> DataFrame:
        """Return the completed changes of rows that lack values."""
        whole_rows = self._complete_chains(ids, chains)
        lost_rows = self._lost_rows(whole_rows, chains)
        if not lost_rows:
            return whole_rows
        names = _chains_with(lost_rows, chains.names)
        lost_ids = ids_frame(self.lookup.spark, names)
        rest = whole_rows.join(lost_ids, list(ROW_ID), "left_anti")
        return rest.unionByName(self._complete_chains(lost_ids, _KeyChains(names, frozenset(names))))

    def _lost_rows(self, whole_rows: DataFrame, chains: "_KeyChains") -> Collection[RowId]:
        """Return the rows that the tables do not have under their former keys.

        They may have left these keys in an earlier cycle, which only the log shows.
        """
        return ids_in(whole_rows.where(_IS_LOST)) - chains.logged if chains.names else ()

    def _complete_chains(self, ids: DataFrame, chains: "_KeyChains") -> DataFrame:
        """Return the changes of rows that lack values, completed from their key chains."""
        by_chain = self._lines(ids, chains).repartition("table_name", KEY_CHAIN)
        in_order = by_chain.sortWithinPartitions(*LINE_ORDER)
        whole_rows = in_order.mapInArrow(in_worker(self._completer(chains)), self.changes.schema)
        return self.keep(whole_rows.sortWithinPartitions("ordinal"))

    def _completer(self, chains: "_KeyChains") -> ChainCompleter:
        valid_since = self.lookup.valid_since if chains.logged else {}
        return ChainCompleter(tuple(self.changes.columns), self.truncates, valid_since)

    def _lines(self, ids: DataFrame, chains: "_KeyChains", max_row_bytes: int | None = None) -> DataFrame:
        """Return the lines of rows: their changes, and their lines from the tables and the log.

        Stored values of a row are NULL if they have more than `max_row_bytes`.
        """
        rest = ", ".join(name for name in self.changes.columns if name not in CHANGE_COLUMNS)
        changes = self.changes.where(f"NOT {IS_TRUNCATE}").join(ids, list(ROW_ID), "left_semi")
        lines = changes.selectExpr("*", f"if({LACKS_VALUES}, struct({rest}), NULL) AS {REST}")
        chains_frame = key_chains_frame(self.lookup.spark, chains.names, chains.logged)
        for stored_lines in self._stored_lines(ids, chains, max_row_bytes):
            lines = lines.unionByName(stored_lines, allowMissingColumns=True)
        lines = lines.join(chains_frame, list(ROW_ID), "left").selectExpr(
            f"coalesce({KEY_CHAIN}, keys) AS {KEY_CHAIN}",
            f"if(is_logged, ordering_key, '') AS {SOURCE_PLACE}",
            f"cast(NULL AS bigint) AS {LOGGED_MICROS}",
            *(*CHANGE_COLUMNS, REST),
        )
        if chains.logged:
            of_log = logged_lines(self._log, self.changes, chains_frame.where("is_logged"))
            lines = lines.unionByName(of_log, allowMissingColumns=True)
        return lines

    def _stored_lines(
        self, ids: DataFrame, chains: "_KeyChains", max_row_bytes: int | None
    ) -> list[DataFrame]:
        """Return the lines of rows from the tables, except rows that are followed from the log."""
        if chains.logged:
            ids = self._broadcast_few(
                ids.join(ids_frame(self.lookup.spark, chains.logged), list(ROW_ID), "left_anti")
            )
        stored_lines = self.lookup.stored_lines(ids)
        if stored_lines is None:
            return []
        if max_row_bytes is not None:
            is_small = F.octet_length("new_values") <= max_row_bytes
            stored_lines = stored_lines.withColumn("new_values", F.when(is_small, F.col("new_values")))
        if not self.lookup.may_be_unknown:
            return [stored_lines]
        stored_lines = self.keep(stored_lines)
        doubtful = stored_lines.where("NOT is_whole_row").select(*ROW_ID)
        return [stored_lines] if doubtful.isEmpty() else [stored_lines, self.lookup.unknown_lines(doubtful)]

    @cached_property
    def _log(self) -> DataFrame:
        return read_log(self.lookup.pipeline, self.lookup.spark)

    def _broadcast_few(self, ids: DataFrame) -> DataFrame:
        return F.broadcast(ids) if self.is_few else ids


@dataclass(frozen=True)
class _KeyChains:
    """Key chains of rows that share a chain with others.

    Args:
        names: names of the rows' key chains.
        logged: rows that are followed from the log, together with their whole chains.
    """

    names: Mapping[RowId, str]
    logged: frozenset[RowId]


def _chains_with(rows: Collection[RowId], names: Mapping[RowId, str]) -> Mapping[RowId, str]:
    """Return the key chains that contain any of the rows."""
    chains = {(row_id[0], names[row_id]) for row_id in rows if row_id in names}
    return {row_id: name for row_id, name in names.items() if (row_id[0], name) in chains}


_LINE: Final = (*CHANGE_COLUMNS, f"ordering_key as {SOURCE_PLACE}")


def late_rows(log: DataFrame, changes: DataFrame) -> frozenset[RowId]:
    """Return the rows of changes that are older than one in the log, under the keys before and after.

    A replay may add such changes. Without transaction metadata, the halves of a key change may also come in
    different cycles: when the second one comes, no table has the row any more.

    Args:
        log: the log without these changes.
        changes: changes that are to enter it.
    """
    present_rows, former_rows = (
        changes.selectExpr("table_name", f"{key} as keys", "ordering_key as placed")
        for key in ("keys", "previous_keys")
    )
    changed_rows = present_rows.union(former_rows).dropna()
    log_rows = log.select(*ROW_ID, "ordering_key")
    truncates = log.where(IS_TRUNCATE).groupBy("table_name").agg(F.max("ordering_key").alias("ordering_key"))
    later = changed_rows.join(log_rows, list(ROW_ID)).unionByName(
        changed_rows.join(truncates, "table_name"), allowMissingColumns=True
    )
    return ids_in(later.where("placed < ordering_key").distinct())


def ids_in(rows: DataFrame) -> frozenset[RowId]:
    """Return the ids of rows, collected in the driver."""
    return frozenset((row[0], row[1]) for row in rows.select(*ROW_ID).collect())


def links_in(changes: DataFrame, tables: Collection[str] | None = None) -> list[Link]:
    """Return the new and old ids of rows whose keys change, of some tables or of all."""
    moves = changes.where("previous_keys IS NOT NULL")
    if tables is not None:
        moves = moves.where(F.col("table_name").isin(*tables))
    rows = moves.select(*ROW_ID, "previous_keys").collect()
    return [((row[0], row[1]), (row[0], row[2])) for row in rows]


def logged_lines(log: DataFrame, changes: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the lines of rows from the log, and all truncates for each of their key chains.

    Args:
        log: the log without the changes.
        changes: changes that are to enter it.
        rows: `table_name`, `keys` and `key_chain` of the rows, broadcast.
    """
    log_lines = log.selectExpr(*_LINE, f"unix_micros(commit_timestamp) as {LOGGED_MICROS}")
    truncates = log_lines.unionByName(changes.selectExpr(*_LINE), allowMissingColumns=True).where(IS_TRUNCATE)
    rows = rows.select(*ROW_ID, KEY_CHAIN)
    chains = F.broadcast(rows.drop("keys").distinct())
    return log_lines.join(rows, list(ROW_ID)).unionByName(truncates.join(chains, "table_name"))
