"""A pipeline: its settings, its source and its part of the lake, opened."""

from dataclasses import dataclass
from functools import cached_property

from cdc_platform.errors import SettingError
from cdc_platform.lake.lake import Lake
from cdc_platform.lake.schema_history import load_history
from cdc_platform.model.evolution import SchemaHistory
from cdc_platform.model.names import find_clash
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
    def watched(self) -> tuple[TableSchema, ...]:
        """All source tables that the change stream watches; asks the source once."""
        return self.source.describe().tables

    @cached_property
    def history(self) -> SchemaHistory:
        """How the source's schema has changed, as far as the lake knows; see `pipeline/evolve.py`."""
        return load_history(self.lake)

    @property
    def known_tables(self) -> tuple[TableSchema, ...]:
        """The columns of all watched tables as far as the lake knows them; asks the source before it does."""
        return tuple(found.schema for found in self.history.tables.values()) or self.watched

    @cached_property
    def tables(self) -> tuple[TableSchema, ...]:
        """The source tables that are materialised, sorted by name, with their present columns.

        A table that the source has dropped stays among them. The source is asked for what the lake does
        not know yet.

        Raises:
            SettingError: the settings name a table that the change stream does not watch, or two that a
                lake cannot tell apart.
        """
        watched = {name: found.schema for name, found in self.history.tables.items()}
        chosen = self.settings.tables
        if not watched or (chosen is not None and not set(chosen) <= watched.keys()):
            watched = {table.name: table for table in self.watched} | watched
        for name in chosen or ():
            if name not in watched:
                raise SettingError(
                    "tables",
                    f"names a table that the change stream does not watch: {name!r}. It watches "
                    f"{', '.join(sorted(watched))}.",
                )
        names = sorted(watched if chosen is None else chosen)
        clash = find_clash(names)
        if clash is not None:
            raise SettingError(
                "tables",
                f"holds two that differ by case only, which a lake cannot tell apart: {clash[0]!r} and "
                f"{clash[1]!r}. Name one of them here, and the other in a pipeline of its own.",
            )
        return tuple(watched[name] for name in names)

    def know(self, history: SchemaHistory) -> None:
        """Go on with a newer history of the source's schema."""
        if history.tables is not self.history.tables:
            self.forget_tables()
        self.__dict__["history"] = history

    def forget_tables(self) -> None:
        """Ask the lake and the source anew when the tables are needed next."""
        for name in ("watched", "tables", "history"):
            self.__dict__.pop(name, None)

    def table(self, name: str) -> TableSchema:
        """Return the schema of one source table.

        Raises:
            SettingError: the pipeline does not materialise it.
        """
        for table in self.tables:
            if table.name == name:
                return table
        raise SettingError("tables", f"does not name {name!r}; it names {[t.name for t in self.tables]}")


def open_existing(settings: PipelineSettings) -> Pipeline:
    """Return the pipeline of these settings to whoever only reads; nothing new is made in the lake.

    Raises:
        PipelineNotFound: it has never run, or there is no lake at the place.
    """
    pipeline = open_pipeline(settings)
    pipeline.lake.require()
    return pipeline


def open_pipeline(settings: PipelineSettings) -> Pipeline:
    """Return the pipeline of these settings; its part of the lake is made when it is first used."""
    return Pipeline(
        settings=settings,
        lake=Lake(settings.lake, settings.name),
        source=SpannerSource(settings.source),
    )
