"""Refusals of a source or the engine become the platform's errors, with what to do."""

import errno
import json
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdc_platform.errors import (
    AccessDenied,
    CaptureStopped,
    DiskFull,
    LibraryMissing,
    ReplicationRefused,
    SettingError,
    SlotInUse,
    SlotOutrun,
    SourceNotFound,
    SourceUnreachable,
)
from cdc_platform.sources.debezium.engine import engine
from cdc_platform.sources.debezium.engine.engine import Order
from cdc_platform.sources.debezium.engine.engine_failures import failure_of
from cdc_platform.sources.debezium.engine.engine_process import EngineProcess, read_failure
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform_tests.programs import free_port
from cdc_platform_tests.servers.postgresql import Cluster
from cdc_platform_tests.support.debezium.databases import connect, database, settings_for

SETTINGS = EngineInput(spool="s", host="h", database="d", user="u")
READER = "reader_without_comments"
SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY)",
    "SELECT pg_create_logical_replication_slot('elsewhere', 'test_decoding')",
    f"CREATE ROLE {READER} LOGIN REPLICATION",
    "REVOKE SELECT ON pg_description FROM PUBLIC",
)


@pytest.mark.integration
def test_a_source_that_cannot_be_captured_says_why(capturing: Cluster, tmp_path: Path) -> None:
    """Before anything is captured, and with the words for what to change; comments are not needed."""
    with database(capturing, "refused") as name, closing(connect(capturing, name)) as connection:
        cursor = connection.cursor()
        for statement in SETUP:
            cursor.execute(statement)
        good = settings_for(capturing, name, tmp_path / "spool")
        expected = {
            "SourceUnreachable": replace(good, port=free_port()),
            "AccessDenied": replace(good, user="nobody_of_this_name"),
            "SourceNotFound": replace(good, database="no_such_database"),
            "SettingError": replace(good, slot="elsewhere"),
            "ReplicationRefused": replace(good, properties={"publication.autocreate.mode": "disabled"}),
            "CaptureStopped": replace(good, user=READER, properties={"binary.handling.mode": "nonsense"}),
        }
        lines = "".join(Order(settings).to_json() + "\n" for settings in expected.values())
        answers = ask(lines)
        cursor.execute(f"DROP ROLE {READER}")
    assert list(expected) == [error for error, _ in answers], answers
    assert "Value must be one of bytes, base64, hex" in answers[-1][1]


@pytest.mark.integration
@pytest.mark.parametrize("statement", ["CREATE DOMAIN feeling AS mood", "CREATE TYPE feeling AS ENUM ()"])
def test_an_enum_that_the_connector_cannot_read_is_found(
    capturing: Cluster, tmp_path: Path, statement: str
) -> None:
    """Such a domain, or an enum without values, ends the connector; the error has a query that names it."""
    with database(capturing, "domains") as name, closing(connect(capturing, name)) as connection:
        cursor = connection.cursor()
        for each in (SETUP[0], "CREATE TYPE mood AS ENUM ('sad')", statement):
            cursor.execute(each)
        ((error, text),) = ask(Order(settings_for(capturing, name, tmp_path / "spool")).to_json() + "\n")
        assert error == "CaptureStopped"
        assert "domain over an enum" in text
        cursor.execute(text.split("`")[1])
        assert cursor.fetchall() == [("feeling",)]


def ask(lines: str) -> list[tuple[str, str]]:
    """Return error and text for each order."""
    command = [sys.executable, "-m", "cdc_platform_tests.sources.debezium.refusals_run"]
    run = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return [(error, text) for error, text in map(json.loads, run.stdout.splitlines())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # what engines and servers have said
        (
            "The connector is trying to read [...], but this is no longer available on the server.",
            SlotOutrun,
        ),
        ('ERROR: replication slot "s" is active for PID 32609', SlotInUse),
        ("ERROR: logical decoding requires wal_level >= logical", ReplicationRefused),
        ("FATAL: must be superuser or replication role to start walsender", ReplicationRefused),
        ("FATAL: permission denied to start WAL sender", ReplicationRefused),
        ("ERROR: all replication slots are in use", ReplicationRefused),
        ("No table filters found for filtered publication p10", SourceNotFound),
        ('Unable to create filtered publication p1 for "public"."a"', ReplicationRefused),
        ("ERROR: permission denied for table t", AccessDenied),
        (
            "Failed to properly convert data value for 'public.floats.v' of type _float8",
            CaptureStopped,
        ),
        ('Invalid value: null used for required field: "v", schema type: ARRAY', CaptureStopped),
        ("FATAL: terminating connection due to administrator command", SourceUnreachable),
        ("java.lang.NullPointerException", CaptureStopped),
        ("java.io.IOException: No space left on device", DiskFull),
        ("PSQLException: ERROR: could not extend file: No space left on device", CaptureStopped),
    ],
)
def test_what_the_engine_says_has_a_meaning(text: str, expected: type[Exception]) -> None:
    """The text may be that of a cause; it is reported with the error."""
    failure = RuntimeError("An exception occurred in the change event producer.")
    failure.__cause__ = RuntimeError(text)
    error = failure_of(failure, SETTINGS)
    assert expected is type(error)
    assert text in str(error)


def test_an_engine_without_memory_says_how_it_needs_less() -> None:
    """A smaller part of a snapshot at a time, or no large column."""
    error = failure_of(RuntimeError("java.lang.OutOfMemoryError: Java heap space"), SETTINGS)
    assert isinstance(error, CaptureStopped)
    assert "`snapshot.fetch.size` to less than 100" in str(error)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ({"error": "SlotInUse", "message": "m"}, SlotInUse("m")),
        ({"error": "LibraryMissing", "message": "m"}, LibraryMissing("m")),
        ({"error": "SettingError", "message": "", "setting": "s", "problem": "p"}, SettingError("s", "p")),
        ({"error": "ValueError", "message": "m"}, CaptureStopped("m")),  # none of ours
    ],
)
def test_an_error_comes_over_from_the_engines_process(
    tmp_path: Path, failure: dict[str, str], expected: Exception
) -> None:
    """It has the same kind and text on this side."""
    path = tmp_path / "failure.json"
    path.write_text(json.dumps(failure))
    read_error = read_failure(path)
    assert (type(expected), str(expected)) == (type(read_error), str(read_error))


def test_a_full_disk_comes_over_by_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written into the spool any more, and the pipeline waits for room all the same."""

    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def capture(*_: object) -> None:
        raise DiskFull("No space left on device")

    settings = replace(SETTINGS, spool=str(tmp_path))
    monkeypatch.setattr(engine, "write_whole", fill)
    monkeypatch.setattr(engine, "capture", capture)
    monkeypatch.setattr(engine, "_end_on_request", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "stdin", StringIO(Order(settings).to_json()))
    code = engine.main()
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    expected = f"No space left on device: {tmp_path}"
    with EngineProcess(settings) as process, pytest.raises(DiskFull, match=expected):
        process.wait()


@pytest.mark.parametrize(
    ("error", "expected"), [(OSError(errno.ENOSPC, "No space left on device"), errno.ENOSPC), (KeyError(), 1)]
)
def test_an_unexpected_error_ends_the_engines_process(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: int
) -> None:
    """It would wait for Java's threads, and the pipeline for it; the disk of its output may be full, too."""

    def fail(*_: object) -> None:
        raise error

    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(engine, "main", fail)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=fill))
    assert expected == engine.exit_code()
