"""Claims that allow one run of a pipeline at a time, and detection of runs whose process died.

A run first writes the process that executes it into its own tags. Dagster's default launcher does not know
whether a run's process is alive; with this tag, any process on the same machine can find out.
"""

import multiprocessing
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dagster as dg

from cdc_platform.assets.layers import PipelineAssets

CLAIM_TAG: Final = "cdc/claim"
LOST_TAG: Final = "cdc/lost"
"""Names the run whose process died: Dagster copies tags to a run that executes another one again."""
FULL_CHECKS_TAG: Final = "cdc/full_checks"
"""States whether a run checks everything, instead of only new data."""

WAIT_S: Final = 0.5
TIMESTAMPS_S: Final = 1.0
"""Resolution of the times at which SQLite stores runs."""
MAX_QUEUED: Final = 100
"""Newest runs of Dagster's queue that are looked at: a backfill may have thousands there."""

_Status = dg.DagsterRunStatus
LAUNCHED: Final = (_Status.NOT_STARTED, _Status.STARTING, _Status.STARTED, _Status.CANCELING)


def pipeline_tag(pipeline: str) -> dict[str, str]:
    """Return the tag of the runs of a pipeline; a run of several pipelines has several."""
    return {f"cdc.pipeline/{pipeline}": "true"}


@dataclass(frozen=True)
class Worker:
    """A process, identified so that an earlier or later process with the same number differs."""

    host: str
    pid: int
    started: str

    def to_tag(self) -> str:
        """Return the worker as the text of a tag."""
        return f"{self.host}/{self.pid}/{self.started}"

    @classmethod
    def from_tag(cls, text: str) -> "Worker":
        """Parse the worker from the value of a run's tag."""
        host, pid, start_time = text.rsplit("/", 2)
        return cls(host, int(pid), start_time)

    @classmethod
    def current(cls) -> "Worker":
        """Return the worker that is this process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> "Worker":
        """Return the worker that is a process of this machine."""
        return cls(socket.gethostname(), pid, _start_time(pid) or "")

    def is_lost(self) -> bool:
        """Return whether the process is certainly gone; False for processes of other machines."""
        return self.host == socket.gethostname() and _start_time(self.pid) != self.started


@dataclass(frozen=True)
class Claim:
    """The turn of a run, by the time at which it was claimed, and the processes that work for it.

    The first one is the run's own. If it is killed, the process of a step may still write.
    """

    run_id: str
    claimed_at: float
    workers: tuple[Worker, ...]

    def to_tag(self) -> str:
        """Return the claim as the text of a tag."""
        return f"{self.run_id}/{self.claimed_at:.6f}/{'|'.join(map(Worker.to_tag, self.workers))}"

    @classmethod
    def of_run(cls, run: dg.DagsterRun) -> "Claim | None":
        """Return the claim of a run; None if it has claimed nothing, whatever it copies of another run."""
        run_id, _, rest = run.tags.get(CLAIM_TAG, "").partition("/")
        if run_id != run.run_id:
            return None
        claimed_at, _, workers = rest.partition("/")
        return cls(run_id, float(claimed_at), tuple(map(Worker.from_tag, workers.split("|"))))

    def is_lost(self) -> bool:
        """Return whether all processes are certainly gone."""
        return all(worker.is_lost() for worker in self.workers)


def _start_time(pid: int) -> str | None:
    """Return the start time of a process in the system's own format, None if there is no such process."""
    boot, stat = Path("/proc/sys/kernel/random/boot_id"), Path(f"/proc/{pid}/stat")
    if boot.exists():
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        # A zombie, a dead child that was not waited for, is no longer a worker.
        return None if fields[0] in "ZX" else f"{boot.read_text().strip()[:8]}-{fields[19]}"
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  a fixed command
    return answer.stdout.strip().replace("/", "-") or None


def claim_run(
    instance: dg.DagsterInstance, run_id: str, pipeline: str, say: Callable[[str], None] = print
) -> None:
    """Claim a run for this process, and wait for the pipeline's runs that claimed their turn earlier.

    If two runs claim at the very same moment and both continue, only one of them can commit the raw records.

    Raises:
        Failure: the run was terminated externally in that time.
    """
    record = instance.get_run_record_by_id(run_id)
    # Ephemeral runs of tests are unknown to the instance until they end.
    if record is None:
        return
    # Steps claim their run in processes and for pipelines of their own: its turn is that of the first one, so
    # no two runs wait for each other.
    earlier = Claim.of_run(record.dagster_run)
    claimed_at = round(time.time(), 6) if earlier is None else earlier.claimed_at
    claim = Claim(run_id, claimed_at, _workers_of(instance, run_id))
    instance.add_run_tags(run_id, {**pipeline_tag(pipeline), CLAIM_TAG: claim.to_tag()})
    run_ids: set[str] = set()
    while True:
        mine = instance.get_run_record_by_id(run_id)
        if mine is None or mine.dagster_run.is_finished:
            raise dg.Failure(f"Run {run_id} was terminated externally before it began.", allow_retries=False)
        older_runs = [other for other in launched_runs(instance, pipeline) if _is_before(other, claim)]
        if not older_runs:
            return
        for other in older_runs:
            if other.dagster_run.run_id not in run_ids:
                say(f"Waiting for run {other.dagster_run.run_id} of pipeline {pipeline}.")
                run_ids.add(other.dagster_run.run_id)
        time.sleep(WAIT_S)


def refuse_cancelled(instance: dg.DagsterInstance, run_id: str) -> None:
    """Raise the interruption of a run that somebody has terminated, if its process has not ended yet.

    Py4J may turn the signal into an error of a call to Spark, after which Dagster and cycles would continue.
    """
    run = instance.get_run_by_id(run_id)
    # By force, it is canceled at once, whatever its process does.
    if run is not None and run.status in {_Status.CANCELING, _Status.CANCELED}:
        raise dg.DagsterExecutionInterruptedError


def _workers_of(instance: dg.DagsterInstance, run_id: str) -> tuple[Worker, ...]:
    """Return the processes that work for a run: this one, and its parent if it executes one step."""
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return (Worker.current(),)
    # A run's own process may have a parent, too: the code location's server.
    events = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_WORKER_STARTED).records
    step_pids = {record.event_log_entry.get_dagster_event().pid for record in events}
    own = (Worker.of(parent.pid),) if os.getpid() in step_pids else ()
    return (*own, Worker.current())


def _is_before(other: dg.RunRecord, claim: Claim) -> bool:
    """Return whether another run claimed its turn first; runs that have not started do not count."""
    other_claim = Claim.of_run(other.dagster_run)
    if other_claim is None or other_claim.run_id == claim.run_id:
        return False
    return (other_claim.claimed_at, other_claim.run_id) < (claim.claimed_at, claim.run_id)


def launched_runs(instance: dg.DagsterInstance, pipeline: str) -> list[dg.RunRecord]:
    """Return the runs of a pipeline that Dagster has launched and that have not ended.

    Runs whose process died are reported as failed, and are not among them.
    """
    records = instance.get_run_records(dg.RunsFilter(tags=pipeline_tag(pipeline), statuses=list(LAUNCHED)))
    return [record for record in records if not _report_if_lost(instance, record)]


class WaitingRuns:
    """Runs of a pipeline that wait for one of its runs to end: they have claimed their turn, or are queued.

    A run that was in Dagster's queue before this one, which Dagster launched first, waits for something else,
    such as a limit of its own tags. It may never start, so this run does not give way to it.
    """

    def __init__(self, instance: dg.DagsterInstance, run_id: str, assets: PipelineAssets) -> None:
        self._instance, self._run_id, self._assets = instance, run_id, assets
        self._queued_at = _queued_at(instance, run_id)
        self._is_of_pipeline: dict[str, bool] = {}

    def exist(self) -> bool:
        """Return whether a run waits now."""
        launched = dg.RunsFilter(tags=pipeline_tag(self._assets.pipeline), statuses=list(LAUNCHED))
        others = (run for run in self._instance.get_runs(launched) if run.run_id != self._run_id)
        if any(Claim.of_run(run) is not None for run in others):
            return True
        queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
        records = self._instance.get_run_records(queued, limit=MAX_QUEUED)
        return any(self._waits(record) for record in records)

    def _waits(self, queued: dg.RunRecord) -> bool:
        """Return whether a run in the queue is of the pipeline, and came after this run."""
        if queued.create_timestamp.timestamp() + TIMESTAMPS_S < self._queued_at:
            return False
        run = queued.dagster_run
        if run.run_id not in self._is_of_pipeline:
            # Runs of the UI have no tag until they begin.
            is_tagged = pipeline_tag(self._assets.pipeline).items() <= run.tags.items()
            self._is_of_pipeline[run.run_id] = is_tagged or not _asset_keys(self._instance, run).isdisjoint(
                self._assets.all_keys
            )
        return self._is_of_pipeline[run.run_id]


def _queued_at(instance: dg.DagsterInstance, run_id: str) -> float:
    """Return when a run came to Dagster's queue, 0 for a run that was in none."""
    events = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.RUN_ENQUEUED, limit=1)
    return events.records[0].timestamp if events.records else 0.0


def _asset_keys(instance: dg.DagsterInstance, run: dg.DagsterRun) -> set[dg.AssetKey]:
    """Return the assets of a run that has not begun; one of a whole job names none, but its plan does."""
    checked = {key.asset_key for key in run.asset_check_selection or ()}
    selected = checked | (run.asset_selection or set())
    return selected or {key for key in keys_of_steps(instance, run.run_id) if key is not None}


def keys_of_steps(instance: dg.DagsterInstance, run_id: str) -> set[dg.AssetKey | None]:
    """Return the assets of which a run has a step."""
    planned = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
    records = instance.get_records_for_run(run_id, of_type=planned).records
    return {record.event_log_entry.get_dagster_event().asset_key for record in records}


def _report_if_lost(instance: dg.DagsterInstance, record: dg.RunRecord) -> bool:
    run = record.dagster_run
    reason = _loss_reason(record, instance.run_monitoring_start_timeout_seconds)
    if reason is None:
        return False
    instance.add_run_tags(run.run_id, {LOST_TAG: run.run_id})
    if run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, reason)
    else:
        instance.report_run_failed(run, reason)
    return True


def _loss_reason(record: dg.RunRecord, start_timeout_s: int) -> str | None:
    """Return the reason why a run counts as lost; a process that does not begin in that time died before.

    On a cluster it may take minutes, for which users set Dagster's own timeout; 0 is none.
    """
    claim = Claim.of_run(record.dagster_run)
    if claim is not None:
        worker = claim.workers[0]
        return f"The run's process {worker.pid} on {worker.host} is gone." if claim.is_lost() else None
    age_s = time.time() - record.update_timestamp.timestamp()
    if 0 < start_timeout_s < age_s:
        return (
            f"The run's process did not begin within {start_timeout_s} s (`run_monitoring` in dagster.yaml)."
        )
    return None


def newest_runs(instance: dg.DagsterInstance, pipeline: str, limit: int) -> Sequence[dg.RunRecord]:
    """Return up to `limit` runs of a pipeline, the newest first."""
    return instance.get_run_records(dg.RunsFilter(tags=pipeline_tag(pipeline)), limit=limit)


def newest_full_checks(instance: dg.DagsterInstance, pipeline: str) -> Sequence[dg.RunRecord]:
    """Return the newest successful run of a pipeline with full checks, if there is one."""
    tags = {**pipeline_tag(pipeline), FULL_CHECKS_TAG: "true"}
    return instance.get_run_records(dg.RunsFilter(tags=tags, statuses=[dg.DagsterRunStatus.SUCCESS]), limit=1)


def failures_in_a_row(instance: dg.DagsterInstance, pipeline: str, limit: int) -> tuple[int, float]:
    """Return the number of newest runs that failed on their own, and the end of the last of them."""
    records = newest_runs(instance, pipeline, limit)
    count = 0
    for record in records:
        run = record.dagster_run
        if run.status is not dg.DagsterRunStatus.FAILURE or run.tags.get(LOST_TAG) == run.run_id:
            break
        count += 1
    return count, (records[0].end_time or 0.0) if count else 0.0
