"""Checks of reading: partitions follow each other, none is stuck, and the watermark never goes back."""

from itertools import pairwise

from pyspark.sql import SparkSession

from cdc_platform.lake.commits.commits import ancestors_of, head, position_of
from cdc_platform.lake.state.control import load_lineage, load_stuck
from cdc_platform.lake.state.cuts import cut_positions
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.stream.lineage import Lineage, Partition, PartitionState, watermark_micros
from cdc_platform.pipeline.checks.check_result import CheckResult, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline


def find_violations(lineage: Lineage) -> list[str]:
    """Return the violated rules, one text for each; empty if the lineage is sound.

    A finished partition has children. A child that continues its parents starts once, at the end of its
    parents and after all of them finished, and no parent is read beyond that. A partition whose parent goes
    on starts after that parent has been read beyond its start. An unread partition holds the watermark at
    its start.
    """
    problems: list[str] = []
    parents = {parent for child in lineage.partitions.values() for parent in child.parent_tokens}
    for partition in lineage.partitions.values():
        if partition.state is PartitionState.FINISHED and partition.token not in parents:
            problems.append(f"Partition `{partition.key}` is finished and has no children")
        problems += _position_violations(partition)
        for token in partition.parent_tokens:
            if token in lineage.partitions:
                problems += _parent_violations(partition, lineage.partitions[token])
    return problems


def _position_violations(partition: Partition) -> list[str]:
    before_start = partition.start_micros - 1
    if partition.running_cycle is None and partition.position_micros != before_start:
        return [f"Partition `{partition.key}` has not been read and does not hold the watermark at its start"]
    if partition.position_micros < before_start:
        return [f"Partition `{partition.key}` has a position before its start"]
    return []


def _parent_violations(child: Partition, parent: Partition) -> list[str]:
    if parent.state is not PartitionState.FINISHED:
        if child.continues_parents and parent.position_micros >= child.start_micros:
            return [f"Partition `{parent.key}` was read beyond the start of its child `{child.key}`"]
        return _running_parent_violations(child, parent)
    problems: list[str] = []
    if child.running_cycle is not None and child.running_cycle < (parent.finished_cycle or 0):
        problems.append(f"Partition `{child.key}` was read before its parent `{parent.key}` ended")
    gap_micros = child.start_micros - 1 - parent.position_micros
    # The partition that lists those of a placement may be older than they are.
    if gap_micros < 0 or (gap_micros > 0 and child.continues_parents is not False):
        problems.append(f"Partition `{child.key}` does not start where its parent `{parent.key}` ended")
    return problems


def _running_parent_violations(child: Partition, parent: Partition) -> list[str]:
    """Return the violations of a parent that continues after the child's start or ended without children."""
    if parent.position_micros >= child.start_micros:
        return []
    if parent.is_finished:
        return [f"Partition `{child.key}` starts after its parent `{parent.key}` had ended"]
    if child.state is not PartitionState.CREATED:
        return [f"Partition `{child.key}` was started before its parent `{parent.key}` was read that far"]
    return []


def check_lineage(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> CheckResult:
    """Look for partitions that finished without children, or started before their parents finished."""
    lineage = load_lineage(pipeline.lake)
    problems = find_violations(lineage) if lineage is not None else []
    partitions = len(lineage.partitions) if lineage is not None else 0
    return CheckResult(
        not problems,
        "; ".join(problems[:5]) or f"{partitions:,} partitions, each started once, after all its parents",
        {"partitions": partitions, "violations": len(problems)},
    )


def check_alive(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> CheckResult:
    """Look for silent or failing partitions, which the newest cycle could not read to its end."""
    stuck = load_stuck(pipeline.lake)
    return CheckResult(
        not stuck,
        "; ".join(partition.describe() for partition in stuck)
        or "every partition that was read has answered to the end of the cycle",
        {"stuck": len(stuck), "longest_s": max((partition.age_s for partition in stuck), default=0.0)},
    )


def check_watermark(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> CheckResult:
    """Look for a watermark that went back, or that passed an unread part of a partition."""
    log = pipeline.lake.system_table(LOG)
    history = [
        position
        for snapshot in ancestors_of(log, head(log))
        if (position := position_of(snapshot)) is not None
    ]
    positions = cut_positions(pipeline.lake)
    back = sum(newer < older for newer, older in pairwise(history))
    back += sum(newer < older for older, newer in pairwise(positions))
    lineage = load_lineage(pipeline.lake)
    in_lineage = watermark_micros(lineage) if lineage is not None else None
    is_ahead = bool(in_lineage is not None and history and history[0] > in_lineage)
    return CheckResult(
        back == 0 and not is_ahead,
        f"watermarks: {len(history):,}, cuts: {len(positions):,}, positions that went back: {back:,}"
        + (", and the log is ahead of an unread partition" if is_ahead else ""),
        {"watermarks": str(len(history)), "cuts": str(len(positions)), "went_back": back},
    )
