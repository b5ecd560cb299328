"""Days of all sources, by name, each on a separate lake with crash points."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.support.crash_points.files import mortal_lake, watch_catalogs
from cdc_platform_tests.support.crash_points.spark_catalog import mortal_session
from cdc_platform_tests.support.days.datastream import FilesDay
from cdc_platform_tests.support.days.day import Day, DayWorkload, Rhythm
from cdc_platform_tests.support.days.debezium import SessionsDay
from cdc_platform_tests.support.days.spanner import open_bank_day
from cdc_platform_tests.support.workloads.workload import Place

OpenDay = Callable[[Place, int], AbstractContextManager[DayWorkload]]
"""Receives also the number of cycles from one schema change to the next."""

DAYS: Final[Mapping[str, OpenDay]] = {
    **{f"spanner_{dialect.value}": partial(open_bank_day, dialect) for dialect in Dialect},
    "datastream": lambda place, every: nullcontext(FilesDay(place, every)),
    "debezium": lambda place, every: nullcontext(SessionsDay(place, every)),
}
"""By name."""


@contextmanager
def open_day(
    name: str, spark: SparkSession, folder: Path, changes: int, seed: int, rhythm: Rhythm
) -> Iterator[Day]:
    """Provide a day that begins with an empty lake, in `lake` of an empty folder.

    Args:
        name: of the day.
        spark: a running session.
        folder: for the lake and the input.
        changes: about how many come with each cycle.
        seed: of all dice.
        rhythm: how often what happens.
    """
    watch_catalogs()
    (folder / "lake").mkdir(parents=True)
    settings = mortal_lake(folder / "lake")
    place = Place(folder / "input", settings, name, changes, seed)
    with (
        # Sockets want a short path.
        TemporaryDirectory(prefix="day-") as short,
        mortal_session(spark, settings, Path(short)) as session,
        DAYS[name](place, rhythm.schema_changed) as workload,
    ):
        yield Day(workload, session, seed, rhythm)
