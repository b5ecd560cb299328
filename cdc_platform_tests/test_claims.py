"""One run of a pipeline at a time, even if processes of others die."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from cdc_platform import claims
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.claims import (
    CLAIM_TAG,
    LOST_TAG,
    Claim,
    WaitingRuns,
    Worker,
    claim_run,
    failures_in_a_row,
    launched_runs,
    pipeline_tag,
)
from cdc_platform_tests.run_origins import ORIGIN

STARTED = dg.DagsterRunStatus.STARTED
ASSETS = PipelineAssets("bank", ("accounts",))
CHECK = dg.AssetCheckKey(ASSETS.table("accounts"), "keys_unique")


@pytest.fixture
def shared_instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance on disk, as processes share it: one in memory refuses a writer while another reads."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as dagster:
        yield dagster


def make_run(
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus = STARTED,
    pipeline: str = "bank",
    worker: Worker | None = None,
    parent: str | None = None,
) -> str:
    """Add a run of a pipeline in some status, and return its id.

    With a worker the run has claimed its turn; with a parent it has that run's tags, as Dagster copies them.
    """
    run_id = str(uuid4())
    tags = {**pipeline_tag(pipeline), **(tags_of(instance, parent) if parent else {})}
    if worker is not None:
        tags[CLAIM_TAG] = Claim(run_id, 1.0, (worker,)).to_tag()
    run = dg.DagsterRun("bank_sync", run_id, status=status, tags=tags, remote_job_origin=ORIGIN)
    return instance.add_run(run).run_id


def tags_of(instance: dg.DagsterInstance, run_id: str) -> Mapping[str, str]:
    """Return the tags of a run."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.tags


def claim_of(instance: dg.DagsterInstance, run_id: str) -> Claim:
    """Return the claim of a run that has one."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    claim = Claim.of_run(run)
    assert claim is not None
    return claim


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
    run_id = make_run(instance, worker=dead_worker())
    assert launched_runs(instance, "bank") == []
    assert status_of(instance, run_id) is dg.DagsterRunStatus.FAILURE


def test_a_cancelling_run_that_was_killed_ends_as_cancelled(instance: dg.DagsterInstance) -> None:
    """A run that was being cancelled when its process died counts as cancelled."""
    run_id = make_run(instance, dg.DagsterRunStatus.CANCELING, worker=dead_worker())
    assert launched_runs(instance, "bank") == []
    assert status_of(instance, run_id) is dg.DagsterRunStatus.CANCELED


@pytest.mark.parametrize(
    ("monitoring", "age_s", "is_lost"),
    [
        ({}, 170, False),
        ({}, 190, True),
        ({"start_timeout_seconds": 600}, 590, False),
        ({"start_timeout_seconds": 600}, 610, True),
        ({"start_timeout_seconds": 0}, 1e6, False),
    ],
)
def test_a_run_that_never_began_is_given_up_in_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    monitoring: Mapping[str, int],
    age_s: float,
    *,
    is_lost: bool,
) -> None:
    """It holds others up while it may still start, which is as long as Dagster is set to wait for it."""
    settings = {"run_monitoring": {"enabled": True, **monitoring}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=settings) as instance:
        make_run(instance, dg.DagsterRunStatus.STARTING)
        now_s = time.time() + age_s
        monkeypatch.setattr(claims, "time", SimpleNamespace(time=lambda: now_s))
        assert is_lost == (launched_runs(instance, "bank") == [])


def test_a_queued_run_is_never_given_up(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may wait in Dagster's queue as long as it has to: it has no process yet that could be lost."""
    run_id = make_run(instance, dg.DagsterRunStatus.QUEUED)
    monkeypatch.setattr(claims, "time", SimpleNamespace(time=lambda: 1e10))
    assert launched_runs(instance, "bank") == []
    assert status_of(instance, run_id) is dg.DagsterRunStatus.QUEUED


def test_other_pipelines_do_not_matter(instance: dg.DagsterInstance) -> None:
    """Different pipelines run at the same time."""
    make_run(instance, pipeline="shop", worker=Worker.current())
    assert launched_runs(instance, "bank") == []


def test_a_run_of_several_pipelines_has_the_turn_of_each(instance: dg.DagsterInstance) -> None:
    """Each of them finds it, and it waits for no run of a pipeline that claims its turn after it began."""
    both, later = make_run(instance), make_run(instance, pipeline="shop")
    for run_id, pipeline in ((both, "bank"), (later, "shop"), (both, "shop")):
        claim_run(instance, run_id, pipeline)
    found = [
        {record.dagster_run.run_id for record in launched_runs(instance, name)} for name in ("bank", "shop")
    ]
    assert [{both}, {both, later}] == found


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
    assert WaitingRuns(shared_instance, first, ASSETS).exist()
    run = shared_instance.get_run_by_id(first)
    assert run is not None
    shared_instance.report_run_failed(run)
    waiting.join(60)
    assert not waiting.is_alive()
    assert [f"Waiting for run {first} of pipeline bank."] == messages


@pytest.mark.parametrize(
    ("selection", "is_of_pipeline"),
    [
        ({"asset_selection": {ASSETS.cut}}, True),
        ({"asset_selection": set(), "asset_check_selection": {CHECK}}, True),
        ({"asset_selection": {dg.AssetKey(["shop", "orders"])}}, False),
        ({}, False),
    ],
)
def test_a_run_in_the_queue_is_waiting(
    instance: dg.DagsterInstance, selection: Mapping[str, Any], *, is_of_pipeline: bool
) -> None:
    """Where Dagster limits the runs at once, what a user starts in the UI has neither begun nor a tag."""
    running = make_run(instance, worker=Worker.current())
    queued = dg.DagsterRunStatus.QUEUED
    instance.add_run(dg.DagsterRun("__ASSET_JOB", status=queued, remote_job_origin=ORIGIN, **selection))
    assert WaitingRuns(instance, running, ASSETS).exist() == is_of_pipeline


def test_a_run_of_the_job_in_the_queue_is_waiting(instance: dg.DagsterInstance) -> None:
    """Runs of the pipeline's job have its tag before they begin."""
    running = make_run(instance, worker=Worker.current())
    make_run(instance, pipeline="shop", status=dg.DagsterRunStatus.QUEUED)
    assert not WaitingRuns(instance, running, ASSETS).exist()
    make_run(instance, status=dg.DagsterRunStatus.QUEUED)
    assert WaitingRuns(instance, running, ASSETS).exist()


@pytest.mark.parametrize(("queued_s", "waits"), [(-10, True), (10, False)])
def test_a_run_that_the_queue_has_passed_over_waits_for_something_else(
    instance: dg.DagsterInstance, queued_s: int, *, waits: bool
) -> None:
    """It may never start, and each further run would end after one cycle; later ones wait for this run.

    A run that came to the queue after this one is later, also if it came before this one was launched.
    """
    make_run(instance, status=dg.DagsterRunStatus.QUEUED)
    running = make_run(instance, worker=Worker.current())
    for kind, at_s in ((dg.DagsterEventType.RUN_ENQUEUED, queued_s), (dg.DagsterEventType.RUN_STARTING, 60)):
        event = dg.DagsterEvent(kind.value, "bank_sync")
        instance.report_dagster_event(event, running, timestamp=time.time() + at_s)
    assert WaitingRuns(instance, running, ASSETS).exist() == waits


def test_a_run_of_a_job_of_its_own_is_waiting(shared_instance: dg.DagsterInstance) -> None:
    """A whole job of a user names no assets in its run, and has no tag of a pipeline; its plan has them."""
    running = make_run(shared_instance, worker=Worker.current())
    for keys, is_of_pipeline in (([dg.AssetKey("orders")], False), ([ASSETS.cut], True)):
        assets = [dg.asset(key=key)(lambda: None) for key in keys]
        job = dg.Definitions(assets, jobs=[dg.define_asset_job("mine")]).resolve_job_def("mine")
        run = shared_instance.create_run_for_job(
            job, remote_job_origin=ORIGIN, status=dg.DagsterRunStatus.QUEUED
        )
        assert (run.asset_selection, pipeline_tag("bank").items() & run.tags.items()) == (None, set())
        assert WaitingRuns(shared_instance, running, ASSETS).exist() == is_of_pipeline


def test_a_claim_does_not_wait_for_a_dead_run(instance: dg.DagsterInstance) -> None:
    """A run whose process was killed does not hold up the next one."""
    make_run(instance, worker=dead_worker())
    run_id = make_run(instance)
    claim_run(instance, run_id, "bank")
    assert os.getpid() == claim_of(instance, run_id).workers[0].pid


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
    run_id = make_run(instance, worker=dead_worker())
    launched_runs(instance, "bank")
    assert run_id == tags_of(instance, run_id)[LOST_TAG]
    assert failures_in_a_row(instance, "bank", limit=5) == (0, 0.0)


def test_a_run_that_is_executed_again_is_not_the_lost_one(instance: dg.DagsterInstance) -> None:
    """Dagster copies the tags of a run to the one that repeats it, whose own process has yet to begin."""
    lost_id = make_run(instance, worker=dead_worker())
    launched_runs(instance, "bank")
    run_id = make_run(instance, dg.DagsterRunStatus.STARTING, parent=lost_id)
    assert [run_id] == [record.dagster_run.run_id for record in launched_runs(instance, "bank")]
    assert not WaitingRuns(instance, lost_id, ASSETS).exist()


def test_a_failure_of_a_run_that_is_executed_again_counts(instance: dg.DagsterInstance) -> None:
    """The process of its parent was killed, its own was not."""
    lost_id = make_run(instance, worker=dead_worker())
    launched_runs(instance, "bank")
    make_run(instance, dg.DagsterRunStatus.FAILURE, parent=lost_id)
    assert failures_in_a_row(instance, "bank", limit=5)[0] == 1


@dg.op
def first_step(context: dg.OpExecutionContext) -> int:
    """Claim the run, and return the process that executes this step."""
    claim_run(context.instance, context.run_id, "bank")
    return os.getpid()


@dg.op
def second_step(context: dg.OpExecutionContext, first_pid: int) -> None:
    """Look at the run as another process does between two steps, and claim it again."""
    assert Worker.of(first_pid).started == ""
    going_on = launched_runs(context.instance, "bank")
    assert [context.run_id] == [record.dagster_run.run_id for record in going_on]
    before = claim_of(context.instance, context.run_id)
    claim_run(context.instance, context.run_id, "bank")
    again = claim_of(context.instance, context.run_id)
    assert replace(before, workers=(before.workers[0], Worker.current())) == again


@dg.job(executor_def=dg.multiprocess_executor)
def two_steps() -> None:
    """Run two steps, each in its own process."""
    second_step(first_step())


@pytest.mark.parametrize(("starts", "is_over"), [(["x"], True), (["x", None], False), ([None], False)])
def test_a_run_goes_on_while_the_process_of_its_step_does(starts: list[str | None], *, is_over: bool) -> None:
    """Its own process may be killed, and that of a step still writes."""
    current = Worker.current()
    workers = (current if start is None else replace(current, started=start) for start in starts)
    assert is_over == Claim("r", 1.0, tuple(workers)).is_lost()


@pytest.mark.integration
def test_steps_in_processes_of_their_own_are_one_run(shared_instance: dg.DagsterInstance) -> None:
    """Dagster's default executor ends a step's process before the next one begins: the run goes on."""
    with dg.execute_job(dg.reconstructable(two_steps), shared_instance) as result:
        assert result.success
