"""Materialisations that a run logs for each whole cycle after its first one."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import dagster as dg

from cdc_platform import metadata
from cdc_platform.assets.data_versions import DataVersions, cut_version, table_version
from cdc_platform.assets.tables import find_stored
from cdc_platform.lake.commits.commits import count_rows, head
from cdc_platform.model.base.stored_names import LOG
from cdc_platform.model.base.turns import choose_by_turns
from cdc_platform.model.stream.lineage import Lineage, PartitionState
from cdc_platform.model.stream.read_windows import WindowOutcome, WindowReport
from cdc_platform.pipeline.cycle import CycleOutcome
from cdc_platform.pipeline.merging.build import MergeOutcome
from cdc_platform.pipeline.opened.pipeline import Pipeline

MAX_PARTITIONS: Final = 200
"""Maximum number of partitions with a materialisation per cycle; if there are more, they take turns."""
STATES_EVERY_S: Final = 60.0
"""Interval between materialisations that report a state which has not changed."""


@dataclass
class LoggedStates:
    """States of partitions that a run has logged: each is logged when it changes, or else once a minute.

    Dagster keeps every materialisation. A picture of the lineage and hundreds of windows for every cycle
    would be gigabytes a day.
    """

    every_s: float = STATES_EVERY_S
    logged_at: float = field(default_factory=time.monotonic)
    """When every state was last logged, by the monotonic clock."""
    is_due: bool = False
    """Whether the cycle logs every state."""
    _turn: int = 0
    _windows: dict[str, WindowOutcome] = field(default_factory=dict)
    _partitions: dict[str, PartitionState] = field(default_factory=dict)

    def begin_cycle(self) -> None:
        """Decide whether the cycle logs every state."""
        now_s = time.monotonic()
        self.is_due = now_s - self.logged_at >= self.every_s
        if self.is_due:
            self.logged_at = now_s
            self._turn += 1

    def choose_windows(self, windows: Sequence[WindowReport], lineage: Lineage) -> Sequence[WindowReport]:
        """Return the windows to log: all that are due, or those whose outcome has changed."""
        changes = [window for window in windows if self._windows.get(window.token) is not window.outcome]
        self._windows.update((window.token, window.outcome) for window in changes)
        for token in self._windows.keys() - lineage.partitions.keys():
            del self._windows[token]
        return choose_by_turns(windows if self.is_due else changes, MAX_PARTITIONS, self._turn)

    def is_lineage_wanted(self, lineage: Lineage) -> bool:
        """Return whether the cycle logs the lineage: it is due, or a partition has another state."""
        states = {token: partition.state for token, partition in lineage.partitions.items()}
        is_changed = states != self._partitions
        self._partitions = states
        return self.is_due or is_changed


def cycle_events(
    versions: DataVersions, pipeline: Pipeline, outcome: CycleOutcome, lineage: Lineage, states: LoggedStates
) -> Iterator[dg.AssetMaterialization]:
    """Yield one materialisation for each asset that a cycle advanced, and for each state to be logged."""
    if not outcome.read.committed:
        return
    states.begin_cycle()
    assets = versions.assets
    yield from _raw_events(versions, outcome, lineage, states)
    if states.is_lineage_wanted(lineage):
        yield versions.materialise(assets.lineage, metadata.describe_lineage(lineage))
    rows = count_rows(head(pipeline.lake.system_table(LOG)))
    yield versions.materialise(assets.log, metadata.describe_order(outcome.order, rows))
    if outcome.copy.copies:
        yield versions.materialise(assets.copies, metadata.describe_copies(outcome.copy))
    for merge in outcome.merges:
        if merge.snapshot_id is not None:
            yield merge_event(versions, pipeline, merge)
    is_event_source = assets.capabilities.delivers_events
    facts = metadata.describe_cut(
        outcome.cut, outcome.read.left_since_micros, delivers_events=is_event_source
    )
    seconds = metadata.describe_seconds(outcome.seconds)
    yield versions.materialise(assets.cut, {**facts, **seconds}, cut_version(outcome.cut))
    # It is downstream of the cut, so without it the graph would show it as Unsynced.
    yield versions.materialise(assets.maintenance, metadata.describe_maintenance(outcome.maintenance))


def merge_event(versions: DataVersions, pipeline: Pipeline, merge: MergeOutcome) -> dg.AssetMaterialization:
    """Return the materialisation of a table or history that caught up with the log."""
    facts = metadata.describe_merge(merge, find_stored(pipeline, merge.table), versions.assets.log)
    key = versions.assets.table(merge.table)
    return versions.materialise(key, facts, table_version(pipeline, merge))


def _raw_events(
    versions: DataVersions, outcome: CycleOutcome, lineage: Lineage, states: LoggedStates
) -> Iterator[dg.AssetMaterialization]:
    keys = {partition.token: partition.key for partition in lineage.partitions.values()}
    for report in states.choose_windows(outcome.read.windows, lineage):
        facts = metadata.describe_window(report, outcome.read.clock_micros)
        yield versions.materialise(versions.assets.raw, facts, partition=keys.get(report.token))
