"""A pipeline: its settings, its source and its part of the lake, opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cdc_platform.errors import SettingError
from cdc_platform.lake.lake import Lake
from cdc_platform.model.table_options import (
    PLAIN,
    TableOptions,
    history_name,
    history_schema,
    stored_schema,
    taken_names,
)
from cdc_platform.model.table_schema import TableSchema
from cdc_platform.pipeline.settings import PipelineSettings
from cdc_platform.sources.spanner.source import SpannerSource


@dataclass(frozen=True)
class Pipeline:
    """What the steps of a tick work with; opening it reaches neither the source nor Spark."""

    settings: PipelineSettings
    lake: Lake
    source: SpannerSource

    @property
    def name(self) -> str:
        """Name of the pipeline, and of its namespace in the lake."""
        return self.settings.name

    @cached_property
    def tables(self) -> tuple[TableSchema, ...]:
        """The source tables that are materialised, sorted by name; asks the source once.

        Raises:
            SettingError: the settings name a table that the change stream does not watch, or ask for
                an option that the table has no room for.
        """
        watched = {table.name: table for table in self.source.describe().tables}
        chosen = self.settings.tables if self.settings.tables is not None else tuple(watched)
        options = self.settings.table_options
        named = {**dict.fromkeys(chosen, "tables"), **dict.fromkeys(options, "table_options")}
        for name, setting in named.items():
            if name not in watched:
                raise SettingError(
                    setting,
                    f"names a table that the change stream does not watch: {name!r}. It watches "
                    f"{', '.join(sorted(watched))}.",
                )
        _check_room(options, watched)
        return tuple(watched[name] for name in sorted(chosen))

    def options(self, table: str) -> TableOptions:
        """Return the options of a source table."""
        return self.settings.table_options.get(table, PLAIN)

    @property
    def histories(self) -> tuple[TableSchema, ...]:
        """The source tables that keep a history."""
        return tuple(table for table in self.tables if self.options(table.name).history)

    @property
    def lake_tables(self) -> Mapping[str, str]:
        """What a cut names: each table and each history, with the source table whose changes fill it."""
        tables = {table.name: table.name for table in self.tables}
        return tables | {history_name(table.name): table.name for table in self.histories}

    def stored(self, name: str) -> TableSchema:
        """Return the columns that a table or a history has in the lake.

        Raises:
            SettingError: the pipeline has no such table or history.
        """
        table = self.table(self.lake_tables.get(name, name))
        return stored_schema(table, self.options(name)) if table.name == name else history_schema(table)

    def forget_tables(self) -> None:
        """Ask the source anew when the tables are needed next; it may have got columns since."""
        self.__dict__.pop("tables", None)

    def table(self, name: str) -> TableSchema:
        """Return the schema of one source table.

        Raises:
            SettingError: the pipeline does not materialise it.
        """
        for table in self.tables:
            if table.name == name:
                return table
        raise SettingError("tables", f"does not name {name!r}; it names {[t.name for t in self.tables]}")


def _check_room(options: Mapping[str, TableOptions], watched: Mapping[str, TableSchema]) -> None:
    for name, option in options.items():
        taken = taken_names(watched[name], option)
        if taken:
            raise SettingError(
                f"table_options.{name}",
                f"needs a column that the source table has already: {', '.join(taken)}. "
                "Leave the option out, or rename the column at the source",
            )
        if option.history and history_name(name) in watched:
            raise SettingError(
                f"table_options.{name}.history",
                f"needs the name of another table that the change stream watches: {history_name(name)}",
            )


def open_pipeline(settings: PipelineSettings) -> Pipeline:
    """Return the pipeline of these settings."""
    return Pipeline(
        settings=settings,
        lake=Lake(settings.lake, settings.name),
        source=SpannerSource(settings.source),
    )
