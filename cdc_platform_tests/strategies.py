"""Every Hypothesis strategy of the tests, from single values up to histories and the ways to cut them."""

import base64
import json
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema
from cdc_platform.model.stream.records import ModType, ValueCaptureType
from cdc_platform.sources.datastream.settings.kinds import SourceKind
from cdc_platform_tests.example_tables import TABLES
from cdc_platform_tests.fake_stream import CyclePlan, ReadSchedule, WindowFault
from cdc_platform_tests.partition_tree import BUCKETS, PartitionTree, Span
from cdc_platform_tests.sources.datastream.generated_events import Event
from cdc_platform_tests.support.history import (
    History,
    JsonValue,
    Key,
    Row,
    RowChange,
    SequenceForm,
    Transaction,
)
from cdc_platform_tests.unified_types import float32

START_MICROS: Final = 1_795_000_000_000_000
"""When all generated streams begin."""
KEYS_PER_TABLE: Final = 4
"""So few that transactions meet on the same rows."""
MAX_INT64: Final = 2**63 - 1

CAPTURES: Final = tuple(capture for capture in ValueCaptureType if capture is not ValueCaptureType.UNKNOWN)
TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)

State = dict[tuple[str, Key], Row]


def share_of_profile(share: float) -> settings:
    """Return the settings of a test with so many times the profile's examples; `ci` has four times `dev`."""
    assert settings.default is not None
    return settings(max_examples=round(share * settings.default.max_examples))


def spark_cases(max_examples: int) -> settings:
    """Return the settings of a test whose cases are slow, being Spark's: the same few in every run."""
    return settings(
        max_examples=max_examples,
        derandomize=True,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def micros(low: int = -62_135_596_800_000_000, high: int = 253_402_300_799_999_999) -> st.SearchStrategy[int]:
    """Timestamps; by default all from the year 1 to the year 9999."""
    return st.integers(low, high)


def record_sequences() -> st.SearchStrategy[tuple[tuple[int, int], str]]:
    """A record sequence as (high, low), and a text in which the source may write it."""
    halves = st.integers(0, 2**64 - 1)
    pairs = st.tuples(halves, halves).map(lambda pair: (pair, f"{pair[0]:016x}-{pair[1]:08x}"))
    plain = st.builds(lambda low, width: ((0, low), f"{low:0{width}x}"), halves, st.sampled_from([1, 8, 16]))
    return pairs | plain


def transaction_ids() -> st.SearchStrategy[str]:
    """Counters as the emulator writes them, and opaque texts as the service does."""
    counters = st.integers(1, 10**6).map(str)
    opaque = st.binary(min_size=6, max_size=9).map(lambda raw: base64.b64encode(raw).decode())
    return counters | opaque


def source_table_names() -> st.SearchStrategy[str]:
    """Names of source tables, in named schemas too, and with characters that a lake cannot have."""
    part = st.text(st.sampled_from("aZ09_.-$é`\\ /"), min_size=1, max_size=8)
    return part | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def json_values(column_type: ColumnType) -> st.SearchStrategy[JsonValue]:
    """Values of a type that are not NULL, as change records write them."""
    by_code: Mapping[str, Callable[[], st.SearchStrategy[JsonValue]]] = {
        "INT64": lambda: st.integers(-MAX_INT64 - 1, MAX_INT64).map(str),
        "BOOL": st.booleans,
        "FLOAT64": lambda: st.floats(allow_nan=False, allow_infinity=False),
        "NUMERIC": lambda: st.decimals(-(10**20), 10**20, places=9).map(lambda value: f"{value:f}"),
        "BYTES": lambda: st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode()),
        "DATE": lambda: st.dates(min_value=date(1600, 1, 1)).map(str),
        "TIMESTAMP": lambda: micros(0, START_MICROS).map(to_rfc3339),
        "FLOAT32": lambda: st.floats(width=32, allow_nan=False, allow_infinity=False),
        "ENUM": lambda: st.integers(-(2**31), 2**31 - 1).map(str),
        "PROTO": lambda: st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode()),
        "UUID": lambda: st.uuids().map(str),
        "INTERVAL": lambda: st.from_regex(r"P-?[0-9]{1,4}Y-?[0-9]{1,2}M-?[0-9]{1,5}DT0S", fullmatch=True),
        "JSON": lambda: st.dictionaries(TEXTS, st.integers() | st.none(), max_size=2).map(json.dumps),
        "STRING": lambda: TEXTS,
    }
    if column_type.element is not None:
        return st.lists(st.none() | json_values(column_type.element), max_size=3)
    return by_code[column_type.code]()


def column_types() -> st.SearchStrategy[ColumnType]:
    """Every type of the source whose values are distinguished, and arrays of them."""
    codes = "INT64 BOOL FLOAT32 FLOAT64 NUMERIC STRING BYTES DATE TIMESTAMP JSON UUID INTERVAL ENUM PROTO"
    scalars = st.sampled_from([ColumnType(code) for code in codes.split()])
    return scalars | scalars.map(lambda element: ColumnType("ARRAY", element))


@st.composite
def typed_json_values(draw: st.DrawFn) -> tuple[ColumnType, list[JsonValue]]:
    """A type, and values of it, NULL among them."""
    column_type = draw(column_types())
    return column_type, draw(st.lists(st.none() | json_values(column_type), max_size=5))


def rows(table: TableSchema) -> st.SearchStrategy[Row]:
    """All value columns of a row; any of them may be NULL."""
    return st.fixed_dictionaries({column.name: _nullable(column) for column in table.value_columns})


def keys(table: TableSchema) -> st.SearchStrategy[Key]:
    """Primary keys from a small set."""
    number = st.integers(1, KEYS_PER_TABLE)
    return number.map(
        lambda n: tuple(str(n) if c.type.code == "INT64" else f"k{n % 2}" for c in table.key_columns)
    )


@st.composite
def row_changes(draw: st.DrawFn, table: TableSchema, key: Key, old: Row | None) -> tuple[RowChange, ...]:
    """Changes of one transaction to a row: one, or several that may even cancel out."""
    changes: list[RowChange] = []
    row = old
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        changes.append(draw(_row_change(table, key, row)))
        row = changes[-1].new
    if row is None and old is not None and draw(st.booleans()):
        changes.append(draw(_row_change(table, key, None)))
    return tuple(changes)


@st.composite
def _row_change(draw: st.DrawFn, table: TableSchema, key: Key, old: Row | None) -> RowChange:
    if old is None:
        return RowChange(table.name, key, ModType.INSERT, None, draw(rows(table)))
    if not table.value_columns or draw(st.sampled_from(["update", "update", "delete"])) == "delete":
        return RowChange(table.name, key, ModType.DELETE, old, None)
    named = draw(st.sets(st.sampled_from(table.value_columns), min_size=1))
    new = {
        **old,
        **{column.name: draw(_nullable(column)) for column in sorted(named, key=lambda c: c.ordinal)},
    }
    return RowChange(table.name, key, ModType.UPDATE, old, new, frozenset(column.name for column in named))


@st.composite
def transactions(
    draw: st.DrawFn, state: State, commit_micros: int, transaction_id: str, taken: set[tuple[str, Key]]
) -> Transaction:
    """A transaction on the rows of `state` that are not `taken`; it updates both."""
    changes: list[RowChange] = []
    for _ in range(draw(st.integers(1, 5))):
        table = draw(st.sampled_from(TABLES))
        key = draw(keys(table))
        if (table.name, key) in taken:
            continue
        taken.add((table.name, key))
        changes += draw(row_changes(table, key, state.pop((table.name, key), None)))
        if changes[-1].new is not None:
            state[table.name, key] = changes[-1].new
    return Transaction(
        commit_micros=commit_micros,
        transaction_id=transaction_id,
        changes=tuple(changes),
        capture=draw(st.sampled_from(CAPTURES)),
        sequence_form=draw(st.sampled_from(SequenceForm)),
        tag=draw(st.sampled_from(["", "transfer", "RowDeletionPolicy"])),
        is_system=draw(st.booleans()),
    )


@st.composite
def histories(draw: st.DrawFn, max_transactions: int = 8) -> History:
    """Serial histories over several tables; transactions of one commit timestamp touch different rows."""
    count = draw(st.integers(0, max_transactions))
    ids = draw(st.lists(transaction_ids(), min_size=count, max_size=count, unique=True))
    state: State = {}
    taken: set[tuple[str, Key]] = set()
    commit_micros = START_MICROS
    done: list[Transaction] = []
    for transaction_id in ids:
        gap = draw(st.sampled_from([0, 1, 2, 1_000_000]))
        taken = taken if gap == 0 else set()
        commit_micros += gap
        transaction = draw(transactions(state, commit_micros, transaction_id, taken))
        # A transaction whose changes cancel out leaves no trace.
        done += [transaction] if transaction.changes else []
    return History(TABLES, tuple(done), START_MICROS)


@st.composite
def partition_trees(draw: st.DrawFn, end_micros: int, max_events: int = 4) -> PartitionTree:
    """Partitions that split, merge and move at moments around those of the history's transactions."""
    cuts = sorted(draw(st.sets(st.integers(1, BUCKETS - 1), max_size=3)))
    bounds = list(zip([0, *cuts], [*cuts, BUCKETS], strict=True))
    running = [Span(f"token-{n}", low, high, START_MICROS, None, ()) for n, (low, high) in enumerate(bounds)]
    ended: list[Span] = []
    moment = START_MICROS
    for _ in range(draw(st.integers(0, max_events))):
        moment = min(
            moment + draw(st.sampled_from([1, 2, 3, 500_000, 1_000_000])), max(moment, end_micros) + 1
        )
        parents = draw(_neighbours(running))
        low, high = parents[0].low, parents[-1].high
        cut = draw(st.integers(low, high - 1)) if len(parents) == 1 else low
        ranges = [(low, high)] if cut == low else [(low, cut), (cut, high)]
        first = len(ended) + len(running)
        children = [
            Span(f"token-{first + n}", *bounds, moment, None, tuple(parent.token for parent in parents))
            for n, bounds in enumerate(ranges)
        ]
        ended += [_ended(parent, moment) for parent in parents]
        running = sorted([*(s for s in running if s not in parents), *children], key=lambda span: span.low)
    return PartitionTree((*ended, *running), START_MICROS)


def fates() -> st.SearchStrategy[WindowFault]:
    """Fates of windows: most are read, some not, some only in part, some twice."""
    failures = st.none() | st.integers(0, 3)
    return st.builds(WindowFault, st.sampled_from([True, True, True, False]), failures, st.booleans())


@st.composite
def read_schedules(draw: st.DrawFn, history: History, max_cycles: int = 6) -> ReadSchedule:
    """Ways in which a history may be spread over partitions and read in cycles that fail and repeat."""
    moments = st.integers(START_MICROS, history.end_micros + 2)
    near = sorted({t.commit_micros + n for t in history.transactions for n in (0, 1, 2)}) or [
        START_MICROS + 1
    ]
    clocks = draw(st.lists(moments | st.sampled_from(near), max_size=max_cycles))
    cycles = [
        CyclePlan(
            clock,
            draw(st.sampled_from([None, None, 0.000_001, 1.0])),
            tuple(draw(st.lists(fates(), min_size=1, max_size=3))),
            draw(st.integers(0, 1000)),
        )
        for clock in sorted(clocks)
    ]
    return ReadSchedule(draw(partition_trees(history.end_micros)), tuple(cycles))


@st.composite
def streams(draw: st.DrawFn, max_transactions: int = 8) -> tuple[History, ReadSchedule]:
    """A history and a way to read it."""
    history = draw(histories(max_transactions))
    return history, draw(read_schedules(history))


def _nullable(column: Column) -> st.SearchStrategy[JsonValue]:
    return st.none() | json_values(column.type)


@st.composite
def _neighbours(draw: st.DrawFn, running: list[Span]) -> tuple[Span, ...]:
    """One partition that splits or moves, or two neighbours that merge."""
    first = draw(st.integers(0, len(running) - 1))
    return tuple(running[first : first + draw(st.integers(1, 2))])


def _ended(span: Span, end_micros: int) -> Span:
    return Span(span.token, span.low, span.high, span.start_micros, end_micros, span.parents)


@st.composite
def deliveries(draw: st.DrawFn, count: int) -> list[list[int]]:
    """Batches in which `count` events may arrive: every one at least once, in any order, some again."""
    every = st.permutations(range(count))
    again = st.lists(st.integers(0, count - 1), max_size=count)
    arrived = [*draw(every), *draw(again)]
    cuts = sorted(draw(st.sets(st.integers(0, len(arrived)), max_size=4)))
    return [arrived[low:high] for low, high in zip([0, *cuts], [*cuts, len(arrived)], strict=True)]


@st.composite
def spelled_decimals(draw: st.DrawFn) -> str:
    """A decimal with three digits after its point, or with fewer where the last ones are zeros."""
    number = draw(st.sampled_from([0, 1, 10, 1000]) | st.integers(0, 10**30))
    text = f"{draw(st.sampled_from(['', '-']))}{number // 1000}.{number % 1000:03}"
    return draw(st.sampled_from([text, text.rstrip("0").rstrip(".")]))


@st.composite
def change_sequences(draw: st.DrawFn) -> tuple[tuple[int, ...], str]:
    """A sequence of BigQuery's grammar as numbers, and as one of its texts."""
    numbers = draw(
        st.lists(st.sampled_from([0, 1, 15, 16, 2**63]) | st.integers(0, 2**64 - 1), min_size=1, max_size=4)
    )
    rendered = [draw(st.sampled_from(["{:x}", "{:X}", "{:016x}"])).format(number) for number in numbers]
    return tuple(numbers), "/".join(rendered)


@st.composite
def log_places(draw: st.DrawFn, kind: SourceKind) -> tuple[tuple[int, ...], Event]:
    """A place in a log as numbers, and the event of it; so few numbers that parts are equal often."""
    number = st.sampled_from([0, 1, 9, 10, 99, 100, 0xFFFFFFFF]) | st.integers(0, 2**32 - 1)
    item, two, three, moment = (
        draw(number),
        draw(number),
        draw(number),
        draw(st.sampled_from([0, 1000, 2000])),
    )
    stamped = {"source_timestamp": moment, "read_method": f"{kind.value}-cdc"}
    places: dict[SourceKind, tuple[tuple[int, ...], Event]] = {
        SourceKind.MYSQL: ((item, two), {"log_file": f"mysql-bin.{item:06d}", "log_position": two}),
        SourceKind.ORACLE: (
            (item, two, three),
            {
                "scn": item,
                "rs_id": draw(st.sampled_from(["{}", " {} "])).format(f"0x{two:06x}.1.2"),
                "ssn": three,
            },
        ),
        SourceKind.POSTGRESQL: ((item, two), {"lsn": f"{item:X}/{two:X}"}),
        SourceKind.SQLSERVER: (
            (item, two, three),
            {"lsn": f"{item:08x}:{two:08x}:0001", "physical_location": [three, 0, 0]},
        ),
        SourceKind.SALESFORCE: ((), {}),
        SourceKind.MONGODB: ((item, two), {}),
    }
    numbers, metadata = places[kind]
    keys = {"sort_keys": list(numbers)} if kind is SourceKind.MONGODB else {}
    # MongoDB's place has no moment in addition.
    typed = numbers if kind is SourceKind.MONGODB else (*numbers, moment)
    return typed, {**stamped, **keys, "source_metadata": metadata}


def unified_values() -> dict[str, st.SearchStrategy[Any]]:
    """Values of each of Datastream's unified types, as Avro stores them; never NULL."""
    days, clock = st.integers(-719_162, 2_932_896), st.integers(0, 86_400 * 10**6 - 1)
    offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: minutes * 60_000)
    inner_micros = micros(-62_000_000_000_000_000, 253_000_000_000_000_000)
    json_values = st.recursive(
        st.booleans() | st.integers() | TEXTS | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner | st.none(), max_size=3),
        max_leaves=6,
    )
    longs = st.integers(-(2**63), MAX_INT64)
    items = st.lists(st.none() | longs, max_size=3)
    return {
        "BOOLEAN": st.booleans(),
        "INTEGER": st.integers(-(2**31), 2**31 - 1),
        "LONG": longs,
        "FLOAT": st.floats(width=32).map(float32),
        "DOUBLE": st.floats(),
        **dict.fromkeys(("STRING", "VARCHAR"), TEXTS),
        "NUMBER": st.integers(0, 10**30).map(str),
        "BYTES": st.binary(max_size=5),
        "DECIMAL": st.integers(-(10**65) + 1, 10**65 - 1).map(lambda value: value.to_bytes(28, signed=True)),
        "DATE": days,
        "TIME": clock,
        "TIME_INTERVAL": st.integers(-3_020_399 * 10**6, 3_020_399 * 10**6),
        "TIMESTAMP": micros(),
        "DATETIME": st.fixed_dictionaries({"date": days, "time": clock}),
        "TIMESTAMP_WITH_TIMEZONE": st.fixed_dictionaries({"timestamp": inner_micros, "offset": offsets}),
        "TIME_WITH_TIMEZONE": st.fixed_dictionaries({"time": clock, "offset": offsets}),
        "INTERVAL": st.fixed_dictionaries(
            {
                "months": st.integers(0, 1200),
                "hours": st.integers(0, 10**5),
                "micros": st.integers(0, 3_599_999_999),
            }
        ),
        "JSON": json_values.map(json.dumps),
        "ARRAY": items.map(
            lambda values: {
                "nestedArray": [{"nestedArray": None, "elementValue": value} for value in values],
                "elementValue": None,
            }
        ),
    }


@st.composite
def unified_rows(draw: st.DrawFn) -> tuple[list[str], list[list[Any]]]:
    """Unified types of a table's columns, and rows of it as Avro stores them, with NULL here and there."""
    values = unified_values()
    types = draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=6))
    rows = st.tuples(*(st.none() | values[kind] for kind in types)).map(list)
    return types, draw(st.lists(rows, min_size=1, max_size=4))
