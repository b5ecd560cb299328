"""Lakes with a catalog of their own that are restored from an older copy, whole or in part.

`pipeline/test_failing_effects.py` does the same with the SQLite catalog.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import psycopg2
import pytest

from cdc_platform.errors import LakeDamaged
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.state.cuts import newest_cut
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform.pipeline.cycle import finish_cycle, run_cycle
from cdc_platform.pipeline.opened.pipeline import Pipeline
from cdc_platform_tests.pipeline.bank import bank_pipeline, busy, check_busy, wait
from cdc_platform_tests.servers.postgresql import postgresql, require_postgresql
from cdc_platform_tests.servers.rest_catalog import rest_catalog
from cdc_platform_tests.support.cycles import failed_checks
from cdc_platform_tests.support.sessions import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
CHECKS: Final = ("watermark_monotone", "tables_equal_log", "nothing_lost")


@dataclass(frozen=True)
class KeptLake:
    """A lake of which one older copy can be kept.

    Args:
        lake: the lake.
        files: folder of its tables.
        keep_catalog: keeps the catalog as it is.
        restore_catalog: brings that copy back, under a running server.
    """

    lake: LakeSettings
    files: Path
    keep_catalog: Callable[[], object]
    restore_catalog: Callable[[], object]

    @property
    def copied_files(self) -> Path:
        """Folder with the copy of the tables."""
        return self.files.with_name("copied-files")

    def keep(self) -> None:
        """Keep catalog and files as they are."""
        self.keep_catalog()
        copytree(self.files, self.copied_files)

    def restore_files(self) -> None:
        """Bring the copy of the files back, and nothing that is younger."""
        rmtree(self.files)
        copytree(self.copied_files, self.files)


@contextmanager
def lake_on_postgresql(folder: Path, server: Path) -> Iterator[KeptLake]:
    """Open a lake in a folder, whose catalog is in a database."""
    with postgresql(require_postgresql(), server / "cluster") as uri:

        def run(statement: str) -> None:
            with closing(psycopg2.connect(uri.replace("+psycopg2", ""))) as connection, connection:
                connection.cursor().execute(statement)

        yield KeptLake(
            LakeSettings(str(folder / "lake"), {"type": "sql", "uri": uri}),
            folder / "lake",
            lambda: run("CREATE TABLE kept AS TABLE iceberg_tables"),
            lambda: run("DELETE FROM iceberg_tables; INSERT INTO iceberg_tables SELECT * FROM kept"),
        )


@contextmanager
def lake_on_rest(folder: Path, server: Path) -> Iterator[KeptLake]:
    """Open a lake behind a REST catalog, whose own database is a file."""
    with rest_catalog(server) as uri:

        def copy(source: Path, target: Path) -> None:
            with closing(sqlite3.connect(source)) as before, closing(sqlite3.connect(target)) as after:
                before.backup(after)

        there, kept, files = server / "rest.db", folder / "kept.db", server / "warehouse"
        yield KeptLake(
            LakeSettings(str(folder / "lake"), {"type": "rest", "uri": uri, "warehouse": files.as_uri()}),
            files,
            lambda: copy(there, kept),
            lambda: copy(kept, there),
        )


@pytest.fixture(params=[lake_on_postgresql, lake_on_rest], ids=["postgresql", "rest"])
def kept_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeptLake]:
    """A lake that can be restored."""
    # Another user runs PostgreSQL, who cannot look into the folders of a test.
    with TemporaryDirectory() as server, ExitStack() as stack:
        yield stack.enter_context(request.param(tmp_path, Path(server)))


def start(pipeline: Pipeline, spark: "SparkSession") -> None:
    """Start another process on the pipeline, which runs a cycle."""
    opened, session = replace(pipeline), session_of(spark, pipeline.settings.lake)
    with reaching(pipeline.settings.lake):
        revert_lost_commits(opened.lake)
        finish_cycle(opened, session)
        wait(opened, 1)
        run_cycle(opened, session)


def test_a_restored_lake_continues_or_names_what_is_missing(
    spark: "SparkSession", kept_lake: KeptLake
) -> None:
    """With its catalog restored, cycles since are made again; files that are older than it are damage."""
    pipeline = busy(bank_pipeline(kept_lake.lake))
    start(pipeline, spark)
    kept_lake.keep()
    start(pipeline, spark)
    kept_lake.restore_files()
    with pytest.raises(LakeDamaged, match=r"(no longer exists|is missing)\. Restore .*backup"):
        start(pipeline, spark)
    kept_lake.restore_catalog()
    start(pipeline, spark)
    check_busy(pipeline)
    cut = newest_cut(pipeline.lake)
    assert cut is not None
    assert cut.cut == 2
    start(pipeline, spark)
    kept_lake.restore_catalog()
    start(pipeline, spark)
    check_busy(pipeline)
    assert failed_checks(pipeline, session_of(spark, kept_lake.lake), *CHECKS) == {}
