"""The pages of the demo: Dagster's storage is complete before its processes start."""

import sqlite3
from contextlib import closing
from pathlib import Path

from cdc_platform.demo.home import DAGSTER_YAML
from cdc_platform.demo.pages import create_storage


def test_every_database_has_one_version_before_dagster_starts(tmp_path: Path) -> None:
    """Webserver, daemon and code server find all databases, so that none of them creates one."""
    (tmp_path / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
    create_storage(tmp_path)
    for name in ("history/runs.db", "history/runs/index.db", "schedules/schedules.db"):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            assert len(database.execute("SELECT version_num FROM alembic_version").fetchall()) == 1, name
