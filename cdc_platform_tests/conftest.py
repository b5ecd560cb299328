"""Settings of the whole test run."""

import gc
import os
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, event

from cdc_platform_tests.java_options import shorten_starts

shorten_starts()

# What is imported and collected stays: to look through it time and again takes a seventh of the collection.
gc.disable()

# Where the environment forbids Python to keep what it has compiled, each worker would rewrite the assertions
# of all tests in each run, and each process that a test starts would compile the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = [
    "cdc_platform_tests.dagster_fixtures",
    "cdc_platform_tests.emulator_fixtures",
    "cdc_platform_tests.server_fixtures",
    "cdc_platform_tests.spark_fixtures",
    # These use the former, and so come after it.
    "cdc_platform_tests.kafka_fixtures",
    "cdc_platform_tests.postgresql_fixtures",
]

NEW_OBJECTS: Final = 20_000
"""New objects that let Python look for unreachable ones; with its 700 that takes a thirteenth of the time."""
WITHOUT_SERVICES: Final = "not integration"
"""The expression by which the tests are selected that need no service."""
ALL_INTEGRATION: Final = re.compile(r"^pytestmark = \[?pytest\.mark\.integration\b", re.MULTILINE)

# A busy machine is slow, not wrong.
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@event.listens_for(Engine, "connect")
def _leave_writing_to_the_system(connection: object, _record: object) -> None:
    """Let commits to SQLite survive the death of a process, but not of the machine: they wait for no disk."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread of which no test would be selected: each process would import them for nothing."""
    if config.option.markexpr != WITHOUT_SERVICES or collection_path.suffix != ".py":
        return None
    return True if ALL_INTEGRATION.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_collection_finish() -> None:
    """Let Python's collector leave alone what is there for the whole run: thousands of tests, and modules."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    _read_migrations_once()


def _read_migrations_once() -> None:
    """Let Alembic read Dagster's migrations once: it reads all 89 for each instance, and for each run."""
    scripts = sys.modules.get("alembic.script")
    if scripts is None:  # no test that was collected imports Dagster's storage
        return
    read, directories = scripts.ScriptDirectory.from_config, dict[str | None, Any]()

    def from_config(config: Any) -> Any:
        place = config.get_main_option("script_location")
        if place not in directories:
            directories[place] = read(config)
        return directories[place]

    scripts.ScriptDirectory.from_config = from_config


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files for several workers."""
    if hasattr(config, "workerinput"):
        from cdc_platform_tests.scheduling import sort_files

        sort_files(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what distributes whole files; for another `--dist` it is xdist's own."""
    from cdc_platform_tests.scheduling import FromBothEnds

    return FromBothEnds(config, log) if config.option.dist == "loadfile" else None
