"""Errors of libraries, in the middle of a cycle, as errors that say whether a retry helps."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg import exceptions as iceberg
from pyspark.errors import PySparkException
from requests import exceptions as http
from sqlalchemy.exc import IntegrityError, OperationalError

from cdc_platform.errors import (
    CdcError,
    ClockBehind,
    CommitConflict,
    DiskFull,
    LakeAccessDenied,
    LakeDamaged,
    LakeUnreachable,
)
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.catalog.catalogs import open_catalog
from cdc_platform.lake.catalog.damage import find_full
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.schemas import CUTS, RAW_CHANGE_RECORDS
from cdc_platform.model.base.stored_names import CHECK_RESULTS, RAW

FOLDER: Final = LakeSettings("/lake")
BUCKET: Final = LakeSettings("s3://lakes/lake", {"type": "rest", "uri": "http://catalog"})
STACK: Final = "An error occurred while calling o1.sql.\n: org.apache.spark.SparkException: Job aborted.\n"
EXPIRED: Final = "The provided token has expired."
NO_BODY: Final = "No response body."
ROW: Final = pa.Table.from_pylist([{"cycle": 1}], RAW_CHANGE_RECORDS)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (iceberg.CommitStateUnknownException("InternalError: no answer"), LakeUnreachable),
        (iceberg.ServerError("BadGateway"), LakeUnreachable),
        (iceberg.TooManyRequestsError("TooManyRequests"), LakeUnreachable),
        (iceberg.CommitFailedException("branch main has changed"), CommitConflict),
        (
            iceberg.BadRequestError("Invalid update timestamp 5: before last snapshot log entry at 9"),
            ClockBehind,
        ),
        (http.ConnectionError("Remote end closed connection without response"), LakeUnreachable),
        (http.ReadTimeout("Read timed out."), LakeUnreachable),
        (OSError("AWS Error INTERNAL_FAILURE during PutObject operation"), LakeUnreachable),
        (OSError("AWS Error SLOW_DOWN during HeadObject operation"), LakeUnreachable),
        (OSError("AWS Error UNKNOWN (HTTP status 500) during PutObject operation"), LakeUnreachable),
        (OSError("AWS Error REQUEST_TIME_TOO_SKEWED during PutObject operation"), LakeUnreachable),
        (
            OSError(f"AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: {NO_BODY}"),
            LakeUnreachable,
        ),
        (OSError("AWS Error ACCESS_DENIED during PutObject operation"), LakeAccessDenied),
        (OSError(28, "No space left on device"), DiskFull),
    ],
)
def test_errors_of_python(error: Exception, kind: type[CdcError]) -> None:
    """What the catalog's client and the object store's report is one of our errors."""
    with pytest.raises(kind), reaching(BUCKET):
        raise error


@pytest.mark.parametrize("length", [80, 85, 300])
def test_a_full_disk_is_reported_in_whole_words(length: int) -> None:
    """A line of Spark may be longer than what is shown of it."""
    line = f"org.apache.spark.SparkException: {'a' * length} of {'b' * 90}: No space left on device"
    disk_error = find_full(RuntimeError(line))
    assert disk_error is not None
    assert disk_error.text.split()[0] in {"org.apache.spark.SparkException:", "a" * length, "of"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Caused by: org.apache.iceberg.exceptions.CommitStateUnknownException: unknown", LakeUnreachable),
        ("Caused by: org.apache.iceberg.exceptions.ServiceFailureException: Server error", LakeUnreachable),
        ("Caused by: org.apache.iceberg.jdbc.UncheckedSQLException: Unknown failure", LakeUnreachable),
        ("Caused by: org.sqlite.SQLiteException: [SQLITE_BUSY] The database file is locked", LakeUnreachable),
        ("Caused by: org.sqlite.SQLiteException: [SQLITE_READONLY] a readonly database", LakeAccessDenied),
        ("Caused by: org.postgresql.util.PSQLException: permission denied for table t", LakeAccessDenied),
        ("Caused by: org.apache.iceberg.exceptions.CommitFailedException: Cannot commit", CommitConflict),
        (
            "Caused by: ValidationException: Cannot commit, found new position delete for a file",
            CommitConflict,
        ),
        ("SdkClientException: Unable to execute HTTP request: timeout", LakeUnreachable),
        # Of Python in tasks.
        ("FileNotFoundError: Cannot get file info, file not found: s3://b/lake/a.parquet", LakeUnreachable),
        ("PermissionError: Cannot get file info, access denied: s3://b/lake/a.parquet", LakeAccessDenied),
        ("OSError: AWS Error NO_SUCH_UPLOAD during CompleteMultipartUpload operation", LakeUnreachable),
        ("http.ConnectionClosedException: Premature end of Content-Length delimited body", LakeUnreachable),
        ("http.TruncatedChunkException: Truncated chunk (expected size: 9; actual size: 4)", LakeUnreachable),
        ("java.net.SocketException: Connection reset", LakeUnreachable),
        ("java.net.SocketTimeoutException: Read timed out", LakeUnreachable),
        ("SdkClientException: Unable to load credentials from any of the providers", LakeAccessDenied),
        ("s3.model.S3Exception: Slow down (Service: S3, Status Code: 503, Request ID: 1)", LakeUnreachable),
        (f"s3.model.S3Exception: {EXPIRED} (Service: S3, Status Code: 400)", LakeUnreachable),
        (
            "s3.model.S3Exception: Bad Request (Service: S3, Status Code: 400, Request ID: null)",
            LakeUnreachable,
        ),
        ("s3.model.S3Exception: Forbidden (Service: S3, Status Code: 403)", LakeAccessDenied),
        ("java.lang.IllegalArgumentException: [BUG] Expected sorted snapshot log entries.", ClockBehind),
        ("java.io.FileNotFoundException: File file:/lake/p/t/data/1.parquet does not exist", LakeDamaged),
    ],
)
def test_errors_of_java(text: str, kind: type[CdcError]) -> None:
    """What Spark reports of the catalog and the object store is one of our errors, in one line."""
    with pytest.raises(kind) as caught, reaching(BUCKET):
        raise PySparkException(f"{STACK}{text}\n\tat org.apache.spark.Driver.run(Driver.java:1)")
    assert "\n" not in str(caught.value)


def test_a_token_of_the_settings_that_has_expired_is_not_worth_a_retry() -> None:
    """Only its user can replace it."""
    login = {"s3.access-key-id": "me", "s3.secret-access-key": "secret", "s3.session-token": "t"}
    own = LakeSettings("s3://lakes/lake", {**BUCKET.catalog, **login})
    for error in (
        OSError(f"AWS Error UNKNOWN: ExpiredToken Message: {EXPIRED}"),
        PySparkException(STACK + EXPIRED),
    ):
        with pytest.raises(LakeAccessDenied, match=r"`s3\.session-token`"), reaching(own):
            raise error


@pytest.mark.parametrize(
    "error",
    [OSError(30, "Read-only file system", "/lake/a"), PySparkException("/lake/a (Permission denied)")],
)
@pytest.mark.parametrize("path", ["/lake", "/defs/../lake"])
def test_a_folder_that_cannot_be_written(error: Exception, path: str) -> None:
    """A file system error within the lake names the lake, in any spelling of its path."""
    with (
        pytest.raises(LakeAccessDenied, match="The lake at /lake is not writable;"),
        reaching(LakeSettings(path)),
    ):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        # As pyarrow reports it, and Hadoop.
        OSError(5, "Error writing bytes to file. Detail: [errno 5] Input/output error"),
        PySparkException(f"{STACK}Caused by: java.io.IOException: Input/output error"),
    ],
)
def test_a_disk_that_does_not_answer(error: Exception) -> None:
    """An error of the disk names the lake's folder, and the cycle is tried again."""
    with pytest.raises(LakeUnreachable, match=r"the lake at /lake .* check the disk"), reaching(FOLDER):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("SLOW_DOWN"),
        PySparkException(STACK),
        PySparkException(f"{STACK}StatusCode.UNAVAILABLE of a source"),
        OSError("no such device"),
        OSError(13, "Permission denied", "/elsewhere/lake.txt"),
        ModuleNotFoundError("No module named 'mine'"),
        OperationalError("SELECT x", None, sqlite3.OperationalError("no such column: x")),
        IntegrityError("INSERT", None, sqlite3.IntegrityError("UNIQUE constraint failed")),
    ],
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    """An error that has nothing to do with the lake is a defect, and keeps its traceback."""
    with pytest.raises(type(error)) as caught, reaching(FOLDER):
        raise error
    assert caught.value is error


def test_a_locked_catalog_is_tried_again(tmp_path: Path) -> None:
    """A writer that holds the SQLite file for longer than others wait delays the cycle."""
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db?timeout=0.05"}
    lake = Lake(LakeSettings(str(tmp_path), catalog), "p")
    table = lake.system_table(RAW)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LakeUnreachable, match="database is locked"), reaching(lake.settings):
            table.append(ROW)
    lake.system_table(RAW).append(ROW)
    assert lake.system_table(RAW).scan().to_arrow().num_rows == 1


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_lake_that_is_replaced_meanwhile(tmp_path: Path, is_restored: bool) -> None:
    """A process does not continue in a folder that was deleted, or restored from a backup; a new one does."""
    folder, backup = tmp_path / "lake", tmp_path / "backup"
    lake = Lake(LakeSettings(str(folder)), "p")
    lake.system_table(RAW).append(ROW)
    shutil.copytree(folder, backup)
    table = lake.system_table(RAW)
    table.append(ROW)
    shutil.rmtree(folder)
    if is_restored:
        shutil.copytree(backup, folder)
    with pytest.raises(LakeDamaged, match=r"deleted or replaced|no longer exists"), reaching(lake.settings):
        lake.system_table(RAW).append(ROW)
    restored = Lake(LakeSettings(str(folder)), "p").system_table(RAW)
    restored.append(ROW)
    assert restored.scan().to_arrow().num_rows == 1 + is_restored


def test_a_catalog_that_cannot_be_written_names_the_lake(tmp_path: Path) -> None:
    """A lake that is mounted for reading is an error that says so."""
    _ = Lake(LakeSettings(str(tmp_path)), "p").catalog
    address = f"sqlite:///file:{tmp_path}/catalog.db?mode=ro&uri=true"
    settings = LakeSettings(str(tmp_path), {"type": "sql", "uri": address})
    table = open_catalog(settings).load_table(f"p__cdc.{RAW}")
    with pytest.raises(LakeAccessDenied, match=r"is not writable.*readonly"), reaching(settings):
        table.append(ROW)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("p.users", CommitConflict),
        (f"p__cdc.{RAW}", LakeDamaged),
        (f"p__cdc.{CHECK_RESULTS}", CommitConflict),
    ],
)
def test_a_merged_table_that_is_gone_is_a_conflict_and_an_own_one_damage(
    tmp_path: Path, name: str, kind: type[Exception]
) -> None:
    """The next cycle creates it, and of the platform's own tables only the check results, if damaged."""
    lake = Lake(LakeSettings(str(tmp_path)), "p")
    lake.catalog.create_table_if_not_exists(name, CUTS)
    table = lake.catalog.load_table(name)
    lake.catalog.drop_table(name)
    with pytest.raises(kind), reaching(lake.settings):
        table.refresh()


@pytest.mark.parametrize("suffix", ["", ".db"])
def test_a_file_that_another_run_has_expired_is_a_conflict(tmp_path: Path, suffix: str) -> None:
    """A missing file is damage only if the table still has it, however its location is written."""
    lake = Lake(LakeSettings(str(tmp_path)), "p")
    lake.catalog.create_namespace("shop")
    place = f"file://{tmp_path}/shop{suffix}/cuts"  # Hive's catalog and Glue add the suffix
    table = lake.catalog.create_table("shop.cuts", CUTS, location=place)
    for cut in (1, 2):
        table.append(pa.Table.from_pylist([{"cut": cut}], CUTS))
    expired, current = table.metadata.snapshots
    table.maintenance.expire_snapshots().by_id(expired.snapshot_id).commit()
    kinds = {expired.manifest_list: CommitConflict, current.manifest_list: LakeDamaged}
    for location, kind in kinds.items():
        for error in (
            LakeDamaged.missing(location),
            PySparkException(f"NotFoundException: File does not exist: {location.replace('///', '/')}\n"),
        ):
            with pytest.raises(kind), reaching(lake.settings):
                raise error
