"""Checks of reading: partitions follow each other, none is stuck, and the watermark never goes back."""

from itertools import pairwise

from pyspark.sql import SparkSession

from cdc_platform.lake.catalog.lake import LOG
from cdc_platform.lake.commits.commits import ancestors_of, head, position_of
from cdc_platform.lake.state.control import load_lineage, load_stuck
from cdc_platform.lake.state.cuts import cut_positions
from cdc_platform.model.stream.lineage import watermark_micros
from cdc_platform.model.stream.lineage_rules import violations
from cdc_platform.pipeline.checks.check_result import CheckResult, Scope
from cdc_platform.pipeline.opened.pipeline import Pipeline


def check_lineage(pipeline: Pipeline, _spark: SparkSession, _scope: Scope) -> CheckResult:
    """Look for partitions that finished without children, or started before their parents finished."""
    lineage = load_lineage(pipeline.lake)
    problems = violations(lineage) if lineage is not None else []
    partitions = len(lineage.partitions) if lineage is not None else 0
    return CheckResult(
        not problems,
        "; ".join(problems[:5]) or f"{partitions} partitions, each started once, after all its parents",
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
    passed_it = bool(in_lineage is not None and history and history[0] > in_lineage)
    return CheckResult(
        back == 0 and not passed_it,
        f"watermarks: {len(history)}, cuts: {len(positions)}, positions that went back: {back}"
        + (", and the log is ahead of an unread partition" if passed_it else ""),
        {"watermarks": str(len(history)), "cuts": str(len(positions)), "went_back": back},
    )
