"""Content of a window of raw records, from few of their columns.

A repeated event states the same source time as before, if it states one. So the log is read from the earliest
source time of a window on, which is nearly always recent, even if events may repeat for a long time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.model.base.timestamps import FIRST_MICROS, OrderPlace, from_datetime, to_datetime
from cdc_platform.model.rows.keyless import UNNUMBERED_PREFIX
from cdc_platform.model.stream.events import ADDRESS
from cdc_platform.model.stream.records import ChangeKind, ModType

SHAPE: Final = ("table_name", "mod_type", "value_capture_type", "column_types")
ShapeKey = tuple[str | None, str | None, str | None, str | None]
TypedTable = tuple[str, str]
"""A table, and the column types of its records."""
Key = TypeVar("Key")
ROWS_PER_PLACE: Final = 100
_MAX_PLACES: Final = 4_000
"""Of a window; a larger one has fewer places in proportion."""
_OF_SNAPSHOTS: Final = frozenset({ModType.SNAPSHOT.value, ModType.TRUNCATE.value})
_SLACK_MICROS: Final = 1_000_000
"""A newer connector may state microseconds for an event for which an older one stated milliseconds."""


class ShapeFacts(NamedTuple):
    """Facts about the records of one shape.

    ``first_order`` and ``last_order`` are the ordering keys of the first and the last event; empty for
    records of a change stream.
    """

    records: int
    first_micros: int
    last_micros: int
    first_order: str = ""
    last_order: str = ""

    def plus(self, other: "ShapeFacts") -> "ShapeFacts":
        """Return the facts about the records of both."""
        return ShapeFacts(
            self.records + other.records,
            min(self.first_micros, other.first_micros),
            max(self.last_micros, other.last_micros),
            min(self.first_order, other.first_order),
            max(self.last_order, other.last_order),
        )


@dataclass(frozen=True)
class ValueFacts:
    """Facts about the keys and values of events.

    Args:
        longest_bytes: size of the longest text of keys or of values.
        has_unnumbered: whether some rows without a key have no number yet.
        lacks_values: whether the source omitted some values.
        lacks_of_new: whether it did so for inserted rows, or for rows whose keys change.
        has_addresses: whether some events have the addresses of their rows.
    """

    longest_bytes: int = 0
    has_unnumbered: bool = False
    lacks_values: bool = False
    lacks_of_new: bool = False
    has_addresses: bool = False

    def plus(self, other: "ValueFacts") -> "ValueFacts":
        """Return the facts about the events of both."""
        return ValueFacts(
            max(self.longest_bytes, other.longest_bytes),
            self.has_unnumbered or other.has_unnumbered,
            self.lacks_values or other.lacks_values,
            self.lacks_of_new or other.lacks_of_new,
            self.has_addresses or other.has_addresses,
        )


@dataclass(frozen=True)
class WindowContent:
    """Records of a window, with the facts that limit the search for their duplicates in the log.

    Args:
        records: number of records, including duplicates.
        shapes: the shapes of the records.
        since_micros: earliest source time of a change; None if no change states one.
        lacks_moments: whether some changes, usable or not, do not state a source time.
        has_faults: whether some events cannot be used.
        values: facts about keys and values; None if these were not read.
        places: the place in the order of one in `rows_per_place` records.
        rows_per_place: number of records for each place.
    """

    records: int = 0
    shapes: Mapping[ShapeKey, ShapeFacts] = field(default_factory=dict)
    since_micros: int | None = None
    lacks_moments: bool = False
    has_faults: bool = False
    values: ValueFacts | None = ValueFacts()
    places: tuple[OrderPlace, ...] = ()
    rows_per_place: int = ROWS_PER_PLACE

    def plus(self, other: "WindowContent") -> "WindowContent":
        """Return the content of both."""
        moments = [micros for micros in (self.since_micros, other.since_micros) if micros is not None]
        rows_per_place = max(self.rows_per_place, other.rows_per_place)
        places = *self.one_place_in(rows_per_place), *other.one_place_in(rows_per_place)
        content = WindowContent(
            self.records + other.records,
            _joined(self.shapes, other.shapes),
            min(moments, default=None),
            self.lacks_moments or other.lacks_moments,
            self.has_faults or other.has_faults,
            None if self.values is None or other.values is None else self.values.plus(other.values),
            places,
            rows_per_place,
        )
        return content.with_fewer_places() if len(places) > _MAX_PLACES else content

    def with_fewer_places(self) -> "WindowContent":
        """Return the content with every second place."""
        return replace(self, places=self.places[::2], rows_per_place=2 * self.rows_per_place)

    def one_place_in(self, rows_per_place: int) -> tuple[OrderPlace, ...]:
        """Return the places of one in this many records, a multiple of `rows_per_place`."""
        return self.places[:: rows_per_place // self.rows_per_place]

    @property
    def first_micros(self) -> int | None:
        """The earliest time of a record; None without records."""
        return min((facts.first_micros for facts in self.shapes.values()), default=None)

    @property
    def last_micros(self) -> int | None:
        """The latest time of a record; None without records."""
        return max((facts.last_micros for facts in self.shapes.values()), default=None)

    @property
    def may_have_addresses(self) -> bool:
        """Whether some events may have the addresses of their rows."""
        return self.values is None or self.values.has_addresses

    @property
    def tables(self) -> frozenset[str]:
        """The source tables that the records change."""
        return frozenset(table for table, *_ in self.shapes if table is not None)

    def typed_tables(self, *, skips_deletes: bool = False) -> dict[TypedTable, str]:
        """Return the tables with the column types of their records, each with the first ordering key."""
        return _earliest(
            ((table, text), facts.first_order)
            for (table, kind, _, text), facts in self.shapes.items()
            if table is not None and text is not None
            if not (skips_deletes and kind == ModType.DELETE.value)
        )

    @property
    def earlier_changes_sql(self) -> str:
        """SQL of the changes of the log that records of the window may equal."""
        if self.lacks_moments:
            return "true"
        # A connector may state the time now although it did not when the event first came.
        parts = ["source_timestamp IS NULL"]
        if self.since_micros is not None:
            since = to_datetime(max(FIRST_MICROS, self.since_micros - _SLACK_MICROS)).isoformat()
            parts.append(f"source_timestamp >= timestamp'{since}'")
        # Rows of snapshots, and truncates before them, have another time when they are read again.
        if any(kind in _OF_SNAPSHOTS for _, kind, *_ in self.shapes):
            parts.append(f"change_kind IN ('{ChangeKind.SNAPSHOT.value}', '{ChangeKind.TRUNCATE.value}')")
        return f"({' OR '.join(parts)})"


def _earliest(orders: Iterable[tuple[Key, str]]) -> dict[Key, str]:
    first_orders: dict[Key, str] = {}
    for key, order in orders:
        first_orders[key] = min(order, first_orders.get(key, order))
    return first_orders


def _joined(
    first_shapes: Mapping[ShapeKey, ShapeFacts], second_shapes: Mapping[ShapeKey, ShapeFacts]
) -> dict[ShapeKey, ShapeFacts]:
    shapes = dict(first_shapes)
    for key, facts in second_shapes.items():
        shapes[key] = facts.plus(shapes[key]) if key in shapes else facts
    return shapes


def content_of(batch: pa.Table | pa.RecordBatch) -> WindowContent:
    """Return the content of some raw records, without facts about values if they lack the column `mods`."""
    names = batch.schema.names
    is_of_events = "event" in names
    shapes = _shapes_of(batch, is_of_events=is_of_events)
    places = _places_of(batch, "record_order" if is_of_events else "server_transaction_id")
    if not is_of_events:
        return WindowContent(batch.num_rows, shapes, values=None, places=places)
    moments = pc.struct_field(batch.column("event"), "source_timestamp")
    since = pc.min(moments).as_py()
    return WindowContent(
        batch.num_rows,
        shapes,
        None if since is None else from_datetime(since),
        bool(moments.null_count),
        pc.struct_field(batch.column("event"), "fault").null_count < batch.num_rows,
        _values_of(batch) if "mods" in names else None,
        places,
    )


def _shapes_of(batch: pa.Table | pa.RecordBatch, *, is_of_events: bool) -> dict[ShapeKey, ShapeFacts]:
    orders = ["record_order"] if is_of_events else []
    columns = pa.table({name: batch.column(name) for name in (*SHAPE, "record_timestamp", *orders)})
    ends = [(name, end) for name in ("record_timestamp", *orders) for end in ("min", "max")]
    rows = columns.group_by(list(SHAPE)).aggregate([("record_timestamp", "count"), *ends])
    of_orders = [rows[f"{name}_{end}"].to_pylist() for name, end in ends if name in orders]
    facts = zip(
        rows["record_timestamp_count"].to_pylist(),
        map(from_datetime, rows["record_timestamp_min"].to_pylist()),
        map(from_datetime, rows["record_timestamp_max"].to_pylist()),
        *([order or "" for order in end] for end in of_orders),
        strict=True,
    )
    return {key: ShapeFacts(*of_key) for key, of_key in zip(keys_of(rows), facts, strict=True)}


def _values_of(batch: pa.Table | pa.RecordBatch) -> ValueFacts:
    mods = pc.list_flatten(batch.column("mods"))
    texts = [pc.struct_field(mods, name) for name in ("keys", "new_values")]
    unavailable, metadata = (
        pc.struct_field(batch.column("event"), name) for name in ("unavailable_columns", "metadata")
    )
    lacks = pc.fill_null(pc.greater(pc.list_value_length(unavailable), 0), False)
    is_insert = pc.fill_null(pc.equal(batch.column("mod_type"), ModType.INSERT.value), False)
    is_new = pc.or_(is_insert, pc.is_valid(pc.struct_field(batch.column("event"), "previous_keys")))
    return ValueFacts(
        max(pc.max(pc.binary_length(text)).as_py() or 0 for text in texts),
        bool(pc.any(pc.starts_with(texts[0], UNNUMBERED_PREFIX)).as_py()),
        bool(pc.any(lacks).as_py()),
        bool(pc.any(pc.and_(lacks, is_new)).as_py()),
        _has_addresses(metadata),
    )


def _has_addresses(metadata: pa.Array | pa.ChunkedArray) -> bool:
    # Quotes are frequent in JSON: a search that does not begin with one takes a sixth of the time.
    candidates = metadata.filter(pc.match_substring_regex(metadata, f'{ADDRESS}"'))
    return bool(pc.any(pc.match_substring(candidates, f'"{ADDRESS}"')).as_py())


def _places_of(batch: pa.Table | pa.RecordBatch, order: str) -> tuple[OrderPlace, ...]:
    rows = pa.array(range(0, batch.num_rows, ROWS_PER_PLACE), pa.int64())
    moments, texts = (batch.column(name).take(rows) for name in ("record_timestamp", order))
    micros = moments.cast(pa.int64()).to_pylist()
    return tuple((moment, text or "") for moment, text in zip(micros, texts.to_pylist(), strict=True))


def keys_of(rows: pa.Table) -> Iterator[ShapeKey]:
    """Return the shape of each row."""
    return zip(*(rows[name].to_pylist() for name in SHAPE), strict=True)


def content_to_json(content: WindowContent) -> dict[str, Any]:
    """Return content as plain values for `content_from_json`."""
    values = content.values
    return {
        "records": content.records,
        "shapes": [[*key, *facts] for key, facts in content.shapes.items()],
        "since_micros": content.since_micros,
        "lacks_moments": content.lacks_moments,
        "has_faults": content.has_faults,
        "values": None if values is None else vars(values),
        "places": content.places,
        "rows_per_place": content.rows_per_place,
    }


def content_from_json(entry: Mapping[str, Any]) -> WindowContent:
    """Return the content that `content_to_json` has described."""
    shapes = {
        (table, kind, capture, text): ShapeFacts(*facts)
        for table, kind, capture, text, *facts in entry["shapes"]
    }
    values = entry["values"]
    return WindowContent(
        entry["records"],
        shapes,
        entry["since_micros"],
        entry["lacks_moments"],
        entry["has_faults"],
        None if values is None else ValueFacts(**values),
        tuple((micros, text) for micros, text in entry["places"]),
        entry["rows_per_place"],
    )
