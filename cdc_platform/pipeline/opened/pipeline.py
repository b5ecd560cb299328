"""A pipeline: its settings, its source and its part of the lake, opened."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, cast

from cdc_platform.errors import SettingError
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.state.schema_history import load_history
from cdc_platform.model.base.cached_values import cached_value
from cdc_platform.model.base.names import is_reserved_column, lake_table_name
from cdc_platform.model.base.progress import Progress
from cdc_platform.model.base.timestamps import clock_micros
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.exclusions import describe_findings
from cdc_platform.model.schema.lake_tables import LakeTable, Refusals
from cdc_platform.model.schema.schema_reads import SchemaRead, storable, storable_columns
from cdc_platform.model.schema.table_options import (
    PLAIN,
    TableOptions,
    history_name,
    history_schema,
    name_in_history,
    stored_schema,
    without_histories,
)
from cdc_platform.model.schema.table_schema import TableSchema
from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.pipeline.opened.examined_tables import ExaminedTables
from cdc_platform.pipeline.opened.lake_places import refused_tables
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.pipeline.opened.source import EventSource, Source, StreamSource
from cdc_platform.pipeline.opened.sources import open_source

_CACHED_VALUES: Final = (
    *("watched_tables", "tables", "tables_by_name", "histories", "lake_tables"),
    *("refusals", "schema_history"),
)
"""Cached values that depend on the tables of the lake and of the source."""


@dataclass(frozen=True)
class Pipeline:
    """Context of the steps of a cycle; opening it reaches neither the source nor Spark."""

    settings: PipelineSettings
    lake: Lake
    source: Source
    opened_micros: int = field(default_factory=clock_micros, compare=False)
    """When this process opened it, by this machine's clock."""
    progress: Progress = field(default_factory=Progress, compare=False, repr=False)
    """The steps that this process is running."""
    examined_tables: ExaminedTables = field(
        default_factory=ExaminedTables, init=False, compare=False, repr=False
    )
    """Tables that this process need not examine again."""

    def as_reader(self) -> "Pipeline":
        """Return the pipeline for reading alone: it neither makes nor needs what is missing in the lake."""
        return replace(self, lake=replace(self.lake, is_reader=True))

    @property
    def capabilities(self) -> SourceCapabilities:
        """Guarantees of the source about its changes."""
        return self.settings.capabilities

    @property
    def stream_source(self) -> StreamSource:
        """The source, for callers that know that it is a change stream, or can be compared or copied."""
        return cast("StreamSource", self.source)

    @property
    def event_source(self) -> EventSource:
        """The source, for callers that know that it delivers events."""
        return cast("EventSource", self.source)

    @property
    def name(self) -> str:
        """Name of the pipeline and of its namespace in the lake."""
        return self.settings.name

    @cached_value
    def watched_tables(self) -> tuple[TableSchema, ...]:
        """All source tables that the change stream watches; asks the source once."""
        return tuple(map(storable_columns, self.source.list_tables()))

    def read_schema(self, micros: int) -> SchemaRead:
        """Return the source's schema at a moment, without what a lake cannot store.

        Raises:
            SourceError: the source does not state its schema.
        """
        return storable(self.source.read_schema(micros))

    @cached_value
    def schema_history(self) -> SchemaHistory:
        """Changes of the source's schema that the lake records; see `pipeline/schema/schema_evolution.py`."""
        return load_history(self.lake)

    @property
    def known_tables(self) -> tuple[TableSchema, ...]:
        """The columns of all watched tables that the lake knows; before the first cycle, those of the source.

        Dropped tables are left out: their names may return with another key. A source without an order of
        changes is not asked: the columns of its newest events may not be those that a table begins with.
        """
        histories = self.schema_history.tables.values()
        if not histories and self.capabilities.comes_in_order:
            return self.watched_tables
        return tuple(columns.schema for columns in histories if columns.is_watched)

    @cached_value
    def tables(self) -> tuple[TableSchema, ...]:
        """The source tables that are materialised, sorted by name, with their present columns.

        They include tables that the source has dropped. The source is asked only for tables that the lake
        does not know yet.

        Raises:
            SettingError: the settings name a table that the change stream does not watch, name two tables
                with one place in the lake, or set options for a table that does not exist at the source.
        """
        selection, options, history = self.settings.tables, self.settings.table_options, self.schema_history
        sources = {name: columns.schema for name, columns in history.tables.items()}
        table_settings = {
            **dict.fromkeys(selection or (), "tables"),
            **dict.fromkeys((name for name in options if name not in history.other_names), "table_options"),
        }
        if not sources or not set(table_settings) <= sources.keys():
            sources = {table.name: table for table in self.watched_tables} | sources
        if not self.capabilities.can_be_compared:
            # A table becomes known with its first event.
            table_settings = {name: setting for name, setting in table_settings.items() if name in sources}
        for name, setting in table_settings.items():
            if name not in sources and (
                setting == "tables" or name not in self.read_schema(self.source.clock_micros()).unwatched
            ):
                raise SettingError(
                    setting,
                    "names a table that the change stream does not watch, or whose key has no column: "
                    f"{name!r}. It watches {', '.join(sorted(sources))}.",
                )
        if selection is not None:
            _check_places(self._find_refusals(history, sources))
        names = self.select_tables(sources)
        if self.capabilities.can_be_compared:
            _check_keys(sources[name] for name in names)
        return tuple(sources[name] for name in names)

    def _chosen_names(self, names: Collection[str]) -> list[str]:
        table_names = self.settings.tables
        return sorted(names if table_names is None else {*table_names} & {*names})

    def _find_refusals(self, history: SchemaHistory, names: Collection[str]) -> Refusals:
        """Return the chosen tables among these, and their histories, that the lake cannot have."""
        histories = {name for name, option in self.settings.table_options.items() if option.history}
        return refused_tables(self.lake, history, self._chosen_names(names), histories)

    def select_tables(self, names: Collection[str]) -> list[str]:
        """Return the chosen source tables among these that the lake can have, sorted."""
        refusals = self._find_refusals(self.schema_history, names)
        return [name for name in self._chosen_names(names) if LakeTable(name) not in refusals]

    @cached_value
    def refusals(self) -> Refusals:
        """Known tables that the lake does not have because other tables hold their names."""
        return self._find_refusals(self.schema_history, self.schema_history.tables)

    def findings(self, history: SchemaHistory) -> tuple[str, ...]:
        """Return a sentence for each difference between lake and source by design, or by the settings."""
        named_tables = {*(self.settings.tables or ()), *self.settings.table_options}
        return describe_findings(history, named_tables, self._find_refusals(history, history.tables))

    def use_history(self, history: SchemaHistory) -> None:
        """Replace the history of the source's schema with a newer one."""
        if history.tables is not self.schema_history.tables:
            self.forget_tables()
        self.__dict__["schema_history"] = history

    def options(self, table: str) -> TableOptions:
        """Return the options of a source table."""
        table_options = self.settings.table_options.get(table, PLAIN)
        has_history = table_options.history and LakeTable(table, is_history=True) not in self.refusals
        return replace(table_options, history=has_history, keeps_order=not self.capabilities.comes_in_order)

    @cached_value
    def histories(self) -> tuple[TableSchema, ...]:
        """The source tables that keep a history."""
        return tuple(table for table in self.tables if self.options(table.name).history)

    @cached_value
    def lake_tables(self) -> Mapping[str, str]:
        """Tables and histories of a cut, each with the source table whose changes fill it."""
        tables = {table.name: table.name for table in self.tables}
        return tables | {history_name(table.name): table.name for table in self.histories}

    @property
    def present_tables(self) -> tuple[str, ...]:
        """The source tables that have a table in the lake, sorted by name; works while the source is down."""
        names = self.lake.table_names()
        # The names alone do not distinguish a history from a source table that is called like one.
        tables = self.schema_history.tables or without_histories(names)
        refusals = refused_tables(self.lake, self.schema_history, tables, histories=())
        table_names = (table for table in tables if LakeTable(table) not in refusals)
        return tuple(sorted(table for table in table_names if lake_table_name(table) in names))

    def stored_schema(self, name: str) -> TableSchema:
        """Return the columns of a table or a history in the lake.

        Raises:
            SettingError: the pipeline has no such table or history.
        """
        table = self.table(self.lake_tables.get(name, name))
        if table.name == name:
            return stored_schema(table, self.options(name))
        columns = (replace(column, name=name_in_history(column.name)) for column in table.columns)
        return history_schema(replace(table, columns=tuple(columns)))

    def forget_tables(self) -> None:
        """Clear the cached tables; the next use asks the lake and the source again."""
        for name in _CACHED_VALUES:
            self.__dict__.pop(name, None)

    @cached_value
    def tables_by_name(self) -> Mapping[str, TableSchema]:
        """The tables of `tables`, by name."""
        return {table.name: table for table in self.tables}

    def table(self, name: str) -> TableSchema:
        """Return the schema of one source table.

        Raises:
            SettingError: the pipeline does not materialise it.
        """
        table = self.tables_by_name.get(name)
        if table is None:
            raise SettingError("tables", f"does not name {name!r}; it names {[*self.tables_by_name]}")
        return table


def open_existing(settings: PipelineSettings) -> Pipeline:
    """Open the pipeline of these settings if the lake has it; creates neither a pipeline nor a lake.

    Adds system tables that an earlier version of the platform did not have.

    Raises:
        PipelineNotFound: the pipeline has never run, or its warehouse contains no lake.
    """
    pipeline = open_pipeline(settings)
    pipeline.lake.require()
    return pipeline


def _check_places(refusals: Refusals) -> None:
    for table, holder in refusals.items():
        raise SettingError(
            "tables",
            f"names two tables that would be one in the lake, which ignores case: {table.text} and "
            f"{holder.text}. Name one of them in another pipeline",
        )


def _check_keys(tables: Iterable[TableSchema]) -> None:
    for table in tables:
        for column in table.key_columns:
            if is_reserved_column(column.name):
                raise SettingError(
                    "tables",
                    f"includes `{table.name}`, whose key column `{column.name}` has a name that is reserved "
                    "in the lake. Leave that table out here, or rename the column at the source",
                )


def open_lake(settings: PipelineSettings) -> Lake:
    """Return the part of the lake of the pipeline of these settings; it is created at first use."""
    return Lake(settings.lake, settings.name, delivers_events=settings.capabilities.delivers_events)


def open_pipeline(settings: PipelineSettings) -> Pipeline:
    """Return the pipeline of these settings; its part of the lake is created at first use."""
    return Pipeline(
        settings=settings,
        lake=open_lake(settings),
        source=open_source(settings.source),
    )
