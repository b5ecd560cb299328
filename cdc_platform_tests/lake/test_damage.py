"""What Java's stacks tell of a damaged lake."""

import pytest

from cdc_platform.lake.damage import find_damage

FILE = "file:/lake/bank__cdc/change_log/data/00000-4-a1.parquet"
STORED = "s3://lake/bank/accounts/metadata/snap-1.avro"
STACK = """An error occurred while calling o565.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed
Caused by: {cause}
\tat org.apache.hadoop.fs.RawLocalFileSystem.deprecatedGetFileStatus(RawLocalFileSystem.java:980)"""


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        (FILE, f"java.io.FileNotFoundException: File {FILE} does not exist"),
        (STORED, f"org.apache.iceberg.exceptions.NotFoundException: Location does not exist: {STORED}"),
        # What Spark keeps on disk itself, and what has nothing to do with files.
        (None, "java.io.FileNotFoundException: File /tmp/blockmgr-1/0c/shuffle_0_0_0.data does not exist"),
        (None, "java.lang.ArithmeticException: / by zero"),
    ],
)
def test_a_missing_file_of_a_table_is_damage(file: str | None, cause: str) -> None:
    """The file is named, with what can be done; everything else stays what it is."""
    found = find_damage(RuntimeError(STACK.format(cause=cause)))
    assert file is None if found is None else f"file {file}: it is not there any more" in str(found)
