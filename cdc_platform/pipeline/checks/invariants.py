"""The platform's guarantees, each with a check of the lake that can fail."""

from dataclasses import replace
from typing import Final

from cdc_platform.model.stream.source_capabilities import SourceCapabilities
from cdc_platform.pipeline.checks.check_result import Check, Severity
from cdc_platform.pipeline.checks.lineage_checks import check_alive, check_lineage, check_watermark
from cdc_platform.pipeline.checks.log_checks import check_exactly_once, check_nothing_lost, check_transactions
from cdc_platform.pipeline.checks.order_check import check_order
from cdc_platform.pipeline.checks.snapshot_check import check_snapshots
from cdc_platform.pipeline.checks.source_checks import check_schema, check_source
from cdc_platform.pipeline.checks.table_checks import check_histories, check_keys, check_tables_equal_log
from cdc_platform.pipeline.checks.unlogged_checks import check_arrival, check_files, check_quarantine
from cdc_platform.pipeline.checks.value_check import check_values

QUARANTINE_EMPTY: Final = "quarantine_empty"


def checks_of(capabilities: SourceCapabilities, *, fail_on_quarantine: bool = False) -> tuple[Check, ...]:
    """Return the checks that make sense for a source.

    Args:
        capabilities: the guarantees of the source.
        fail_on_quarantine: whether records in quarantine fail a check instead of only causing a warning.
    """
    checks = tuple(check for check in CHECKS if check.applies(capabilities))
    if not fail_on_quarantine:
        return checks
    return tuple(
        replace(check, severity=Severity.FAILURE) if check.name == QUARANTINE_EMPTY else check
        for check in checks
    )


CHECKS: tuple[Check, ...] = (
    Check(
        "nothing_lost",
        "change_log",
        "Records read = records in the log + recognised duplicates + quarantine.",
        is_incremental=True,
        run=check_nothing_lost,
    ),
    Check(
        QUARANTINE_EMPTY,
        "change_log",
        "No record is in quarantine. A warning counts the records by table and reason: their changes are in "
        "no table until `cdc-platform quarantine replay`. The setting `fail_on_quarantine` turns it into a "
        "failure; neither stops the pipeline.",
        run=check_quarantine,
        severity=Severity.WARNING,
    ),
    Check(
        "exactly_once",
        "change_log",
        "Every change is in the log exactly once, after any retry, redelivery or crash.",
        is_incremental=True,
        run=check_exactly_once,
    ),
    Check(
        "transactions_whole",
        "change_log",
        "Every transaction is in the log whole, in commit order.",
        is_incremental=True,
        run=check_transactions,
        applies=lambda capabilities: capabilities.keeps_transactions and not capabilities.delivers_events,
    ),
    Check(
        "transactions_arrive",
        "change_log",
        "Every transaction has arrived whole. A warning names the one that holds back later ones, and how "
        "much of it has arrived.",
        run=check_arrival,
        applies=lambda capabilities: capabilities.keeps_transactions and capabilities.delivers_events,
        severity=Severity.WARNING,
    ),
    Check(
        "values_resolved",
        "change_log",
        "Every value that the source left out is known from an earlier change. A warning names those that "
        "are not, and what else events leave in doubt.",
        every_cycle=False,
        run=check_values,
        applies=lambda capabilities: capabilities.leaves_values_out,
        severity=Severity.WARNING,
    ),
    Check(
        "snapshots_agree",
        "change_log",
        "Every row is in the newest snapshot of its table, or has been changed since. A warning counts rows "
        "that a repeated snapshot does not have.",
        every_cycle=False,
        run=check_snapshots,
        applies=lambda capabilities: capabilities.leaves_values_out and capabilities.comes_in_order,
        severity=Severity.WARNING,
    ),
    Check(
        "order_follows_clock",
        "change_log",
        "Of each row, the change with the greatest position in the source's log is also the newest by the "
        "source's clock, give or take an hour. A warning names rows that stand still because the log has "
        "started over.",
        every_cycle=False,
        run=check_order,
        applies=lambda capabilities: capabilities.log_places is not None,
        severity=Severity.WARNING,
    ),
    Check(
        "lineage_sound",
        "partition_lineage",
        "A finished partition has children, unless a record ended it without any; a partition starts once, "
        "after all its parents have finished or, if they continue, have been read to its start; no parent is "
        "read beyond the start of the children that continue it.",
        run=check_lineage,
    ),
    Check(
        "files_readable",
        "partition_lineage",
        "Every existing file has been read. A warning names those that could not be read, why, and when the "
        "next try is; the others are still read.",
        run=check_files,
        applies=lambda capabilities: capabilities.delivers_events,
        severity=Severity.WARNING,
    ),
    Check(
        "partitions_alive",
        "partition_lineage",
        "No partition is stuck: each answers queries with records or heartbeats. A warning names the one "
        "that does not, or whose read fails, with its age; it holds the watermark, and every cycle queries "
        "it again.",
        run=check_alive,
        applies=lambda capabilities: not capabilities.delivers_events,
        severity=Severity.WARNING,
    ),
    Check(
        "watermark_monotone",
        "change_log",
        "The watermark never goes back, and never passes a known partition that has not been read.",
        run=check_watermark,
    ),
    Check(
        "tables_equal_log",
        "cut",
        "Every table at the newest cut equals its initial copy with the changes of the log up to the cut.",
        every_cycle=False,
        run=check_tables_equal_log,
        table_name="equals_log",
    ),
    Check(
        "keys_unique",
        "cut",
        "Every table at the newest cut has one row for each of its keys.",
        every_cycle=False,
        run=check_keys,
        table_name="keys_unique",
    ),
    Check(
        "histories_sound",
        "cut",
        "The versions of a row follow each other, the current ones equal the table, and all are in the log.",
        every_cycle=False,
        run=check_histories,
        table_name="versions_sound",
        reads_histories=True,
    ),
    Check(
        "tables_equal_source",
        "cut",
        "Every table at the newest cut equals a strong read of the source at the cut's position.",
        every_cycle=False,
        run=check_source,
        applies=lambda capabilities: capabilities.can_be_compared,
        table_name="equals_source",
    ),
    Check(
        "schema_changes",
        "cut",
        "The source's schema has not changed, and the stream leaves nothing out. A warning names what "
        "changed, and why tables differ from the source.",
        is_incremental=True,
        run=check_schema,
        severity=Severity.WARNING,
    ),
)
