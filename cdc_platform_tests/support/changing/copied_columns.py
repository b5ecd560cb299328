"""Sources whose columns change around the moment of an initial copy, and pipelines that copy them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pyarrow as pa

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.schema_reads import SchemaRead
from cdc_platform.model.stream.records import ValueCaptureType
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.spanner.copying.columns import table_arrow_schema
from cdc_platform_tests.pipeline.evolving import STEP, EvolvingSource, value_of
from cdc_platform_tests.support.pipelines import START, feed, make_pipeline, source_of

Action = Callable[[EvolvingSource], None]


KEYS: Final = "12346"


KNOWN: Final = 1
"""The step at which the log is when copies are planned."""


COPIED: Final = 5
"""The step that copies show."""


END: Final = 9


def add(name: str, code: str, number: int | None = None) -> Action:
    """Add a column; with a number all rows have a value of it, as by a default, and no record says so."""

    def action(source: EvolvingSource) -> None:
        source.alter("add", name, code)
        for row in source.rows.values():
            row[name] = None if number is None else value_of(code, number)

    return action


def drop(name: str) -> Action:
    """Drop a column."""
    return lambda source: source.alter("drop", name, "")


def retype(name: str) -> Action:
    """Change a column between STRING and BYTES."""
    return lambda source: source.alter("retype", name, "")


def write(number: int, key: str = "1") -> Action:
    """Write all columns of a row."""
    return lambda source: source.write(key, number, ValueCaptureType.NEW_ROW, tuple(source.columns))


def live(name: str, actions: Mapping[int, tuple[Action, ...]]) -> EvolvingSource:
    """Return a source that has lived."""
    names = ("a", "dropped", "retyped", "twice", "renewed", "third")
    source = EvolvingSource(name, dict.fromkeys(names, "STRING"))
    for step in range(END + 1):
        for key in KEYS if step == 0 else ():
            write(int(key) + 10, key)(source)
        for action in actions.get(step, ()):
            action(source)
        source.end_step()
    return source


def watch(lake: LakeSettings, *sources: EvolvingSource) -> Pipeline:
    """Return a pipeline whose log is at the step `KNOWN`, of a source whose present is `COPIED`."""
    pipeline = make_pipeline(lake, (), copy_chunk_rows=len(KEYS) - 1)
    fake, by_name = source_of(pipeline), {source.name: source for source in sources}

    def read_schema(micros: int) -> SchemaRead:
        tables = [source.schema_at(micros) for source in sources if source.state_at(micros)[0]]
        return SchemaRead(micros, tuple(tables), {}, {})

    def rows_at(table: str, micros: int) -> Iterator[pa.RecordBatch]:
        source = by_name[table]
        rows, schema = source.typed_rows_at(micros), table_arrow_schema(source.schema_at(micros))
        yield pa.RecordBatch.from_pylist(rows, schema)

    fake.schema_at, fake.rows_at, fake.now_micros = read_schema, rows_at, moment(COPIED) + 1
    fake.schemas = read_schema(moment(KNOWN)).tables
    read_until(pipeline, KNOWN, *sources)
    return pipeline


def moment(step: int) -> int:
    """Return when a step happens."""
    return START + step * STEP


def read_until(pipeline: Pipeline, step: int, *sources: EvolvingSource) -> None:
    """Let another process take what the stream has sent until a step into the log."""
    due = [row for source in sources for at, row in source.records if at <= moment(step)]
    for source in sources:
        source.records = [(at, row) for at, row in source.records if at > moment(step)]
    feed(pipeline, moment(step), *due)
