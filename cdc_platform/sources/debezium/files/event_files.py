"""Files with Debezium's events in a folder or an object store."""

from typing import Final

from cdc_platform.sources.debezium.engine.spool import SUFFIX as SPOOLED
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput
from cdc_platform.sources.file_store import FileStore

SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
"""Endings of the names of files that other programs write."""


def event_files(settings: DebeziumSettings) -> FileStore:
    """Return the files with events; a spool also has files that describe it, which are left out."""
    is_spool = isinstance(settings.input, EngineInput)
    return FileStore(settings.folder, (SPOOLED,) if is_spool else SUFFIXES)
