"""Names of the platform's own tables in the lake, and of the entry with the cycle in a snapshot's summary."""

from typing import Final

RAW: Final = "raw_change_records"
LINEAGE: Final = "partition_lineage"
LOG: Final = "change_log"
CUT: Final = "cuts"
QUARANTINE: Final = "quarantine"
SCHEMA: Final = "schema_changes"
COPIES: Final = "copies"
READ_PROGRESS: Final = "files"
CHECK_RESULTS: Final = "check_results"
"""The platform's only table that it drops: damaged check results are stored again."""
DELETION_MARKERS: Final = "deletion_markers"

NEW_TABLES_RUN: Final = "snapshot of new tables"
"""In place of a connector's run, in changes that come while the embedded engine reads rows of new tables."""

CYCLE: Final = "cdc.cycle"
"""Entry of a snapshot's summary: the number of the cycle that made it."""
