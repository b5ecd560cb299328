"""Cycles of a pipeline of many tables, each with a few changes: `python -m benchmarks.many_tables`.

Debezium's files change every table in every cycle, as an application with many small tables does. What a
cycle takes for each table is measured in processor seconds of this process and of Spark, after Java has
compiled what it runs. At the end the tables must equal what was sent.
"""

import shutil
import statistics
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.measure.harness import Report, arguments, must_equal
from benchmarks.measure.tables import open_session
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.spark.launch.spark_settings import SparkSettings
from cdc_platform_tests.support.debezium.workload import Connector, Files
from cdc_platform_tests.support.footprints.soak import Soak
from cdc_platform_tests.support.workloads.workload import Place, describe_difference, stored_rows

COLUMNS: Final = {"id": "bigint", "n": "bigint", "a": "text", "b": "text", "c": "bigint", "d": "bigint"}
CHANGES: Final = 10
"""Changes of a table in a cycle."""
KEYS: Final = 40
WARM_UP: Final = 30


class ManyTables:
    """Inserts and updates of whole rows, a transaction for each table and cycle."""

    def __init__(self, place: Place, tables: int) -> None:
        self._tables = [f"public.t{number:03}" for number in range(tables)]
        self._files, self._connector, self._cycles = Files(place.folder), Connector(place.name), count()
        self._rows: dict[tuple[str, int], tuple[object, ...]] = {}
        columns = dict.fromkeys(self._tables, COLUMNS)
        source = DebeziumSettings(self._files.open(), columns=columns, has_transaction_topic=True)
        self.settings = place.settings(source, self._tables[0])

    def send(self) -> None:
        """Write the changes of a cycle."""
        cycle = next(self._cycles)
        for table in self._tables:
            self._connector.begin()
            for number in range(cycle * CHANGES, (cycle + 1) * CHANGES):
                key = {"id": number % KEYS}
                row = {**key, "n": number, "a": "a" * 20, "b": f"b{number}", "c": cycle, "d": -number}
                self._connector.change(table, "c" if number < KEYS else "u", key, (None, row))
                self._rows[table, number % KEYS] = tuple(row.values())
            self._connector.end()
        self._files.write(self._connector.take(), cycle)

    def finish(self) -> None:
        """Do nothing: every transaction has been written whole."""

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Compare all tables with the rows that were sent."""
        return [
            text
            for table in self._tables
            for text in describe_difference(
                table,
                Counter(row for (name, _), row in self._rows.items() if name == table),
                stored_rows(pipeline, table, COLUMNS),
            )
        ]


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--tables", type=int, default=16, help="tables that change in each cycle")
    parser.add_argument("--cycles", type=int, default=20, help=f"measured cycles, after {WARM_UP} others")
    options = parser.parse_args()
    folder: Path = options.work / "many_tables"
    shutil.rmtree(folder, ignore_errors=True)
    report, lake = Report("many_tables", options), LakeSettings(str(folder / "lake"))
    place = Place(folder / "in", lake, "many", CHANGES * options.tables, options.seed)
    settings = SparkSettings(driver_memory="2g", conf={"spark.ui.enabled": "false"})
    with open_session(settings, lake) as spark:
        soak = Soak(ManyTables(place, options.tables), spark)
        cycles = [*soak.run(WARM_UP + options.cycles)][WARM_UP:]
        must_equal([], soak.faults(), "what is wrong at the end")
        soak.close()
    for what, values in (
        ("cycle", [cycle.whole_s for cycle in cycles]),
        ("cycle, processor", [cycle.processor_s for cycle in cycles]),
        ("processor, for each table", [cycle.processor_s / options.tables for cycle in cycles]),
    ):
        report.note(what, statistics.median(values), "s", worst=round(max(values), 3), cycles=len(values))


if __name__ == "__main__":
    main()
