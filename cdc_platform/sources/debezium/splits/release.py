"""Release of split rows as raw records: those that may enter the log, with the faults of the others."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.base.schemas import EVENT, RAW_EVENT_RECORDS
from cdc_platform.sources.debezium.splits.marked_rows import ORDER, TRANSACTION, from_octets
from cdc_platform.sources.debezium.splits.outcome import ROWS
from cdc_platform.sources.debezium.transactions.transaction_buffer import Admission
from cdc_platform.sources.sound_rows import escape

Rows = TypeVar("Rows")

GONE: Final = "Its table was truncated after it, and the truncate was read first: the row is gone"


@dataclass(frozen=True)
class Release:
    """Turns `SPLIT_BLOCKS` into raw records.

    Args:
        admission: the transactions that may pass.
        truncated: ordering key of each table's last truncate that earlier cycles have passed. Snapshot rows
            belong to no transaction, so they do not make a truncate in another partition wait.
    """

    admission: Admission
    truncated: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the raw records of each block with rows."""
        for batch in blocks:
            for octets in batch.column(ROWS).drop_null():
                for rows in from_octets(octets.as_buffer()):
                    yield from self._passing(rows)

    def _passing(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        free_rows = rows.filter(self._passes(rows))
        if free_rows.num_rows:
            columns = [free_rows.column(name) for name in RAW_EVENT_RECORDS.names]
            columns[RAW_EVENT_RECORDS.get_field_index("event")] = self._events(free_rows)
            yield pa.RecordBatch.from_arrays(columns, schema=RAW_EVENT_RECORDS)

    def _passes(self, batch: pa.RecordBatch) -> pa.Array:
        passes = pc.invert(pc.is_in(batch.column(TRANSACTION), value_set=self._exclusions))
        if self.admission.limit is None:
            return passes
        must_wait = pc.fill_null(pc.greater_equal(batch.column(ORDER), self.admission.limit), False)
        return pc.and_(passes, pc.invert(must_wait))

    @cached_property
    def _exclusions(self) -> pa.Array:
        return pa.array(self.admission.excluded, pa.string())

    @cached_property
    def _faults(self) -> "_Texts":
        return _Texts.by_name(self.admission.faults)

    @cached_property
    def _truncates(self) -> "_Texts":
        return _Texts.by_name(self.truncated)

    def _events(self, rows: pa.RecordBatch) -> pa.Array:
        events = rows.column("event")
        if not (self.admission.faults or self.truncated):
            return events
        fields = dict(zip(EVENT.names, events.flatten(), strict=True))
        of_transaction = self._faults.of(rows.column(TRANSACTION))
        fault = pc.coalesce(of_transaction, fields["fault"])
        last_truncate = self._truncates.of(rows.column("table_name"))
        is_gone = pc.and_(
            pc.and_(pc.is_null(fault), pc.is_valid(rows.column("mod_type"))),
            pc.fill_null(pc.less(rows.column("record_order"), last_truncate), False),
        )
        fields["fault"] = pc.if_else(is_gone, pa.scalar(GONE), fault)
        return pa.StructArray.from_arrays(list(fields.values()), fields=list(EVENT))


@dataclass(frozen=True)
class CycleRows(Generic[Rows]):
    """Rows of one cycle: the splits, the release of their rows, and the reports.

    ``left_since_micros`` is the age of the oldest data of files that is left to later cycles.
    """

    splits: Sequence[Rows]
    release: Release
    reports: Sequence[pa.RecordBatch]
    left_since_micros: int | None = None


@dataclass(frozen=True)
class _Texts:
    """Texts by name, in a form for Arrow's lookups."""

    names: pa.Array
    texts: pa.Array

    @classmethod
    def by_name(cls, texts: Mapping[str, str]) -> "_Texts":
        """Return texts by the names used in rows."""
        names, values = (pa.array(map(escape, part), pa.string()) for part in (texts.keys(), texts.values()))
        return cls(names, values)

    def of(self, names: pa.Array) -> pa.Array:
        """Return the text of each name; null if it has none."""
        return self.texts.take(pc.index_in(names, value_set=self.names))
