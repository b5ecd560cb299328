"""One run of a pipeline at a time, even if processes of others die."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from cdc_platform import claims
from cdc_platform.claims import (
    LOST_TAG,
    PIPELINE_TAG,
    WORKER_TAG,
    Worker,
    claim_run,
    failures_in_a_row,
    has_waiting_run,
    unfinished_runs,
)

STARTED = dg.DagsterRunStatus.STARTED


@pytest.fixture
def shared_instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance on disk, as processes share it: one in memory refuses a writer while another reads."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as dagster:
        yield dagster


def make_run(
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus = STARTED,
    pipeline: str = "bank",
    **tags: str,
) -> str:
    """Add a run of a pipeline in some status, and return its id."""
    named = {PIPELINE_TAG: pipeline, **{key.replace("__", "/"): value for key, value in tags.items()}}
    run = dg.DagsterRun(job_name="bank_sync", status=status, tags=named)
    return instance.add_run(run).run_id


def status_of(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    """Return how a run stands."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def dead_worker() -> Worker:
    """Return a process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = claims._start_time(process.pid)  # noqa: SLF001  the time is fixed by the system
    return Worker(Worker.current().host, process.pid, started or "")


def test_a_worker_survives_its_tag() -> None:
    """A worker is the same after it has been written to a tag and read again."""
    worker = Worker.current()
    assert worker == Worker.from_tag(worker.to_tag())


def test_a_process_is_lost_when_it_has_ended() -> None:
    """This process is alive, and one that ended is not."""
    assert not Worker.current().is_lost()
    assert dead_worker().is_lost()


def test_a_number_that_was_given_again_is_another_process() -> None:
    """A process with the right number and another start is not the worker."""
    assert replace(Worker.current(), started="before").is_lost()


def test_of_another_machine_nothing_is_known() -> None:
    """A worker elsewhere is never taken for lost."""
    assert not replace(dead_worker(), host="another-host").is_lost()


def test_a_killed_run_is_reported_failed(instance: dg.DagsterInstance) -> None:
    """A run whose process is gone fails with that reason, and no longer keeps others from starting."""
    run_id = make_run(instance, cdc__worker=dead_worker().to_tag())
    assert unfinished_runs(instance, "bank") == []
    assert status_of(instance, run_id) is dg.DagsterRunStatus.FAILURE


def test_a_cancelling_run_that_was_killed_ends_as_cancelled(instance: dg.DagsterInstance) -> None:
    """A run that was being cancelled when its process died counts as cancelled."""
    run_id = make_run(instance, dg.DagsterRunStatus.CANCELING, cdc__worker=dead_worker().to_tag())
    assert unfinished_runs(instance, "bank") == []
    assert status_of(instance, run_id) is dg.DagsterRunStatus.CANCELED


def test_a_run_that_never_began_is_given_up_in_time(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without a worker holds others up while it may still start, and not longer."""
    run_id = make_run(instance, dg.DagsterRunStatus.STARTING)
    assert [run_id] == [record.dagster_run.run_id for record in unfinished_runs(instance, "bank")]
    monkeypatch.setattr(claims, "START_TIMEOUT_S", -1)
    assert unfinished_runs(instance, "bank") == []


def test_a_queued_run_is_never_given_up() -> None:
    """A run may wait in Dagster's queue as long as it has to: it has no process yet that could be lost."""
    assert set(claims.UNFINISHED) - set(claims.LAUNCHED) == {dg.DagsterRunStatus.QUEUED}


def test_other_pipelines_do_not_matter(instance: dg.DagsterInstance) -> None:
    """Different pipelines run at the same time."""
    make_run(instance, pipeline="shop", cdc__worker=Worker.current().to_tag())
    assert unfinished_runs(instance, "bank") == []


def test_a_claim_waits_for_the_run_before(
    shared_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that claims its turn second continues once the first has ended, and says what it waits for."""
    monkeypatch.setattr(claims, "WAIT_S", 0.01)
    first, second = make_run(shared_instance), make_run(shared_instance)
    messages: list[str] = []
    claim_run(shared_instance, first, "bank", messages.append)
    waiting = threading.Thread(target=claim_run, args=(shared_instance, second, "bank", messages.append))
    waiting.start()
    deadline = time.monotonic() + 60
    while not messages and time.monotonic() < deadline:
        time.sleep(0.01)
    assert has_waiting_run(shared_instance, first, "bank")
    run = shared_instance.get_run_by_id(first)
    assert run is not None
    shared_instance.report_run_failed(run)
    waiting.join(60)
    assert not waiting.is_alive()
    assert [f"Waiting for run {first} of pipeline bank."] == messages


def test_a_claim_does_not_wait_for_a_dead_run(instance: dg.DagsterInstance) -> None:
    """A run whose process was killed does not hold up the next one."""
    make_run(instance, cdc__worker=dead_worker().to_tag(), cdc__claimed_at="1.0")
    run_id = make_run(instance)
    claim_run(instance, run_id, "bank")
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert Worker.from_tag(run.tags[WORKER_TAG]).pid == os.getpid()


def test_a_run_that_was_given_up_does_not_begin(instance: dg.DagsterInstance) -> None:
    """A run that was reported failed while its process was slow stops before it does anything."""
    run_id = make_run(instance, dg.DagsterRunStatus.FAILURE)
    with pytest.raises(dg.Failure, match="terminated externally"):
        claim_run(instance, run_id, "bank")


def test_failures_in_a_row_are_counted(instance: dg.DagsterInstance) -> None:
    """Only the newest runs count, up to the last that did not fail."""
    for status in ("FAILURE", "SUCCESS", "FAILURE", "FAILURE"):
        make_run(instance, dg.DagsterRunStatus[status])
    assert failures_in_a_row(instance, "bank", limit=5)[0] == 2
    assert failures_in_a_row(instance, "bank", limit=1)[0] == 1
    assert failures_in_a_row(instance, "shop", limit=5) == (0, 0.0)


def test_a_killed_process_is_no_failure_of_the_run(instance: dg.DagsterInstance) -> None:
    """Runs that lost their process are tried again at once."""
    run_id = make_run(instance, cdc__worker=dead_worker().to_tag())
    unfinished_runs(instance, "bank")
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.tags[LOST_TAG] == "true"
    assert failures_in_a_row(instance, "bank", limit=5) == (0, 0.0)
