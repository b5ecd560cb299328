"""Columns whose stored values have another type, and do not belong to the source's present column."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from cdc_platform.lake.catalog.lake import RAW
from cdc_platform.model.base.timestamps import to_datetime
from cdc_platform.model.schema.evolution import SchemaHistory, same_type
from cdc_platform.model.schema.observed_columns import ObservedColumn, parse_column_types
from cdc_platform.model.schema.widening import keeps_values
from cdc_platform.model.stream.records import RecordKind
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.pipeline.reading.window_content import measure_content
from cdc_platform.pipeline.schema.evolve import history_through

NOTHING: Final = frozenset[str]()


def replaced_columns(pipeline: Pipeline, cycle: int) -> Mapping[str, frozenset[str]]:
    """Return the columns, by table, whose values up to a cycle of the log are set aside after it.

    The history of the schema does not have them yet, because it follows the log. Needs no Spark.
    """
    history = history_through(pipeline, cycle)
    if history.position_micros is None:
        return {}
    since = to_datetime(history.position_micros).isoformat()
    window = f"kind = '{RecordKind.DATA_CHANGE.value}' and record_timestamp > '{since}'"
    replaced: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    for table, text in measure_content(pipeline.lake.system_table(RAW), window).shapes:
        replaced[table] |= _replaced(history, table, parse_column_types(text) or {})
    return replaced


def _replaced(history: SchemaHistory, table: str, columns: Mapping[str, ObservedColumn]) -> frozenset[str]:
    table_columns = history.tables.get(table)
    versions = table_columns.live_versions if table_columns is not None else ()
    return frozenset(
        version.name
        for version in versions
        if version.name in columns
        and not same_type(version.type, columns[version.name].type)
        and not keeps_values(version.type, columns[version.name].type)
    )
