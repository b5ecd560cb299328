"""A change stream as a data source of Spark: one task per slice, Arrow batches, no JVM code."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_platform.model.schemas import RAW_CHANGE_RECORDS
from cdc_platform.model.slices import Slice

FORMAT_NAME: Final = "spanner_change_stream"
SETTINGS_OPTION: Final = "settings"
TICK_OPTION: Final = "tick"
SLICES_OPTION: Final = "slices"


def slices_to_json(slices: Sequence[Slice]) -> str:
    """Return slices as the text of the `slices` option."""
    return json.dumps([asdict(piece) for piece in slices])


def slices_from_json(text: str) -> tuple[Slice, ...]:
    """Return the slices of a text that `slices_to_json` made."""
    return tuple(Slice(**fields) for fields in json.loads(text))


def trust_archives() -> None:
    """Keep this process from reading the archives that it imports from more than once.

    Spark puts its own archive and every fetched jar on the path of its workers, and has these read the
    directory of each anew before every task: a fifth of a second, most of it for Iceberg's jar.
    """
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            vars(finder)["invalidate_caches"] = _keep


def _keep() -> None:
    """Do nothing: an archive does not change while a worker lives."""


class ChangeStreamDataSource(DataSource):
    """Format `spanner_change_stream`; options are `settings`, `tick` and `slices`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """Return the schema of `raw_change_records`."""
        trust_archives()
        return from_arrow_schema(RAW_CHANGE_RECORDS)

    def reader(self, schema: StructType) -> "ChangeStreamReader":  # noqa: ARG002 - Spark's signature
        """Return the reader of the slices that the options name."""
        trust_archives()
        return ChangeStreamReader(
            self.options[SETTINGS_OPTION],
            int(self.options[TICK_OPTION]),
            slices_from_json(self.options[SLICES_OPTION]),
        )


@dataclass(frozen=True)
class SlicePartition(InputPartition):
    """The input of one task."""

    value: Slice


class ChangeStreamReader(DataSourceReader):
    """Reads slices in the workers; the client of a worker process outlives its tasks."""

    def __init__(self, settings_json: str, tick: int, slices: tuple[Slice, ...]) -> None:
        self._settings_json, self._tick, self._slices = settings_json, tick, slices

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per slice."""
        return [SlicePartition(piece) for piece in self._slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one slice and the row that reports on it."""
        # Imported here: only workers that read load Google's libraries, and after they were forked.
        from cdc_platform.sources.spanner.client import client_of
        from cdc_platform.sources.spanner.slice_reader import read_slice

        trust_archives()
        piece: Slice = partition.value
        yield from read_slice(client_of(self._settings_json), self._tick, piece)
