"""The check of a source's files: what could not be read is named, and not taken for what is not there."""

import json
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from cdc_platform.lake.commits import read_mark
from cdc_platform.lake.lake import RAW
from cdc_platform.model.records import RecordKind
from cdc_platform.pipeline.pipeline import Pipeline
from cdc_platform.pipeline.verdict import Scope, Verdict

NAMED_FILES: Final = 5
"""How many files a warning names."""


@dataclass(frozen=True)
class UnreadFile:
    """A file, or a folder, that the newest tick could not read, and why."""

    path: str
    error: str


def list_unread(pipeline: Pipeline) -> tuple[UnreadFile, ...]:
    """Return what the newest tick could not read, by path; needs no Spark."""
    raw = pipeline.lake.system_table(RAW)
    window = f"kind = '{RecordKind.FILE.value}' and tick = {read_mark(raw).tick}"
    rows = raw.scan(row_filter=window, selected_fields=("kind", "tick", "event")).to_arrow()
    events = (row["event"] for row in rows.to_pylist())
    told = ((event["origin"], json.loads(event["metadata"])) for event in events)
    unread = (UnreadFile(path, str(facts["error"])) for path, facts in told if not facts["is_read"])
    return tuple(sorted(unread, key=lambda found: found.path))


def check_files(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> Verdict:
    """Look for files that the newest tick could not read."""
    unread = list_unread(pipeline)
    named = "; ".join(f"{found.path}: {found.error}" for found in unread[:NAMED_FILES])
    more = f"; and {len(unread) - NAMED_FILES} more" if len(unread) > NAMED_FILES else ""
    return Verdict(
        not unread,
        f"{named}{more}" if unread else "every file of the newest tick was read",
        {"unread_files": len(unread)},
    )
