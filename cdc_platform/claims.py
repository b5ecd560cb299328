"""One run of a pipeline at a time: runs claim their turn, and those whose process died are found.

A run writes who executes it into its own tags before it does anything. Dagster's default launcher cannot
say whether a run's process lives; with this tag everybody on the same machine can.
"""

import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dagster as dg

PIPELINE_TAG: Final = "cdc/pipeline"
WORKER_TAG: Final = "cdc/worker"
CLAIMED_TAG: Final = "cdc/claimed_at"
LOST_TAG: Final = "cdc/lost"
FULL_CHECKS_TAG: Final = "cdc/full_checks"
"""Says whether a run looks at everything, and not only at what is new since the last one."""

START_TIMEOUT_S: Final = 90
"""A run that has not claimed its turn after this time has lost its process while it started."""
WAIT_S: Final = 0.5

LAUNCHED: Final = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
UNFINISHED: Final = (dg.DagsterRunStatus.QUEUED, *LAUNCHED)


@dataclass(frozen=True)
class Worker:
    """A process, told apart from others that had or will have the same number."""

    host: str
    pid: int
    started: str

    def to_tag(self) -> str:
        """Return the worker as the text of a tag."""
        return f"{self.host}/{self.pid}/{self.started}"

    @classmethod
    def from_tag(cls, text: str) -> "Worker":
        """Return the worker of a tag."""
        host, pid, started = text.rsplit("/", 2)
        return cls(host, int(pid), started)

    @classmethod
    def current(cls) -> "Worker":
        """Return the process that asks."""
        return cls(socket.gethostname(), os.getpid(), _started(os.getpid()) or "")

    def is_lost(self) -> bool:
        """Return whether the process is known to be gone; of other machines nothing is known."""
        return self.host == socket.gethostname() and _started(self.pid) != self.started


def _started(pid: int) -> str | None:
    """Return when a process was started, in the system's own words, None if there is none such."""
    boot, stat = Path("/proc/sys/kernel/random/boot_id"), Path(f"/proc/{pid}/stat")
    if boot.exists():
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        # A dead child that nobody has waited for yet is no worker any more.
        return None if fields[0] in "ZX" else f"{boot.read_text().strip()[:8]}-{fields[19]}"
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  a fixed command
    return answer.stdout.strip().replace("/", "-") or None


def claim_run(
    instance: dg.DagsterInstance, run_id: str, pipeline: str, say: Callable[[str], None] = print
) -> None:
    """Mark a run as ours, and wait until no other run of the pipeline that claimed before is going on.

    Should two runs claim at the very same moment and both go on, the commit of the raw records lets only
    one of them through.

    Raises:
        Failure: somebody has ended the run meanwhile.
    """
    claimed_at = f"{time.time():.6f}"
    tags = {PIPELINE_TAG: pipeline, WORKER_TAG: Worker.current().to_tag(), CLAIMED_TAG: claimed_at}
    instance.add_run_tags(run_id, tags)
    reported: set[str] = set()
    while True:
        mine = instance.get_run_record_by_id(run_id)
        if mine is None or mine.dagster_run.is_finished:
            # Ephemeral runs of tests are unknown to the instance until they end.
            if mine is None:
                return
            raise dg.Failure(f"Run {run_id} was ended from outside before it began.", allow_retries=False)
        older_runs = [other for other in unfinished_runs(instance, pipeline) if _is_before(other, mine)]
        if not older_runs:
            return
        for other in older_runs:
            if other.dagster_run.run_id not in reported:
                say(f"Waiting for run {other.dagster_run.run_id} of pipeline {pipeline}.")
                reported.add(other.dagster_run.run_id)
        time.sleep(WAIT_S)


def _is_before(other: dg.RunRecord, mine: dg.RunRecord) -> bool:
    """Return whether another run claimed its turn first; runs that have not begun do not count."""
    return CLAIMED_TAG in other.dagster_run.tags and _order(other) < _order(mine)


def _order(record: dg.RunRecord) -> tuple[float, str]:
    run = record.dagster_run
    return float(run.tags[CLAIMED_TAG]), run.run_id


def unfinished_runs(instance: dg.DagsterInstance, pipeline: str) -> list[dg.RunRecord]:
    """Return the runs of a pipeline that are going on; those whose process died are reported as failed."""
    records = instance.get_run_records(
        dg.RunsFilter(tags={PIPELINE_TAG: pipeline}, statuses=list(UNFINISHED))
    )
    return [record for record in records if not _report_if_lost(instance, record)]


def has_waiting_run(instance: dg.DagsterInstance, run_id: str, pipeline: str) -> bool:
    """Return whether another run of the pipeline waits for this one to end."""
    records = instance.get_run_records(dg.RunsFilter(tags={PIPELINE_TAG: pipeline}, statuses=list(LAUNCHED)))
    return any(
        record.dagster_run.run_id != run_id and WORKER_TAG in record.dagster_run.tags for record in records
    )


def _report_if_lost(instance: dg.DagsterInstance, record: dg.RunRecord) -> bool:
    run = record.dagster_run
    reason = _why_lost(record)
    if reason is None:
        return False
    instance.add_run_tags(run.run_id, {LOST_TAG: "true"})
    if run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, reason)
    else:
        instance.report_run_failed(run, reason)
    return True


def _why_lost(record: dg.RunRecord) -> str | None:
    run = record.dagster_run
    if run.status not in LAUNCHED:
        return None
    tag = run.tags.get(WORKER_TAG)
    if tag is not None:
        worker = Worker.from_tag(tag)
        return f"The run's process {worker.pid} on {worker.host} is gone." if worker.is_lost() else None
    age_s = time.time() - record.update_timestamp.timestamp()
    if age_s > START_TIMEOUT_S:
        return f"The run's process did not begin within {START_TIMEOUT_S} s."
    return None


def failures_in_a_row(instance: dg.DagsterInstance, pipeline: str, most: int) -> tuple[int, float]:
    """Return how many of the newest runs failed of themselves, and when the last of them ended."""
    records = instance.get_run_records(dg.RunsFilter(tags={PIPELINE_TAG: pipeline}), limit=most)
    count = 0
    for record in records:
        run = record.dagster_run
        if run.status is not dg.DagsterRunStatus.FAILURE or LOST_TAG in run.tags:
            break
        count += 1
    return count, (records[0].end_time or 0.0) if count else 0.0
