"""The plan of a cycle that reads a stream's files, without Spark."""

import os
from pathlib import Path

from cdc_platform.model.base.names import ROOT_TOKEN
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.model.stream.lineage import ChildAnnouncement, Lineage, advance, begin, watermark_micros
from cdc_platform.model.stream.read_windows import ReadPlan, ReadRequest, WindowOutcome, WindowReport
from cdc_platform.model.stream.unread import FORGOTTEN, FailedRead, unread_path
from cdc_platform.sources.datastream.settings.datastream_settings import DatastreamSettings
from cdc_platform.sources.datastream.source import DatastreamSource
from cdc_platform_tests.support.datastream.files import MadeEvent, StreamFolder

CLOCK = 1_900_000_000_000_000


def event(table: str, number: int = 1) -> MadeEvent:
    """Return an insert."""
    return MadeEvent(f"{table}{number}", table, "INSERT", number, {"id": number})


def source_of(folder: Path, max_files: int = 100) -> DatastreamSource:
    """Return the source of a folder."""
    return DatastreamSource(DatastreamSettings(str(folder), max_files=max_files))


def files_in(plan: ReadPlan) -> tuple[SourceFile, ...]:
    """Return the files that a plan reads."""
    return tuple(plan.inputs["files"])


def announced_in(plan: ReadPlan) -> list[str]:
    """Return the objects that a plan announces."""
    tokens: list[str] = plan.inputs["announced"]
    return tokens


def after(lineage: Lineage, plan: ReadPlan) -> Lineage:
    """Return the lineage after a cycle that has done what was planned."""
    reports = [
        WindowReport(
            window.token, window.start_exclusive_micros, window.end_inclusive_micros, WindowOutcome.COMPLETE
        )
        for window in plan.windows
    ]
    start = next((p.start_exclusive_micros + 1 for p in plan.windows if p.token == ROOT_TOKEN), 0)
    cycle = lineage.cycle + 1
    children = [ChildAnnouncement(cycle, start, token, (token,)) for token in announced_in(plan)]
    return advance(lineage, cycle, reports, children)


def test_objects_are_announced_and_then_read(tmp_path: Path) -> None:
    """Files from before the first cycle are in the first cut, which waits for their object."""
    folder, source = StreamFolder(tmp_path), source_of(tmp_path)
    first = folder.write([event("users")])
    lineage, read_progress = begin(source.start_micros()), dict[str, str]()
    plan = source.plan(lineage, ReadRequest(CLOCK), lambda: read_progress)
    assert (
        [window.token for window in plan.windows],
        files_in(plan),
        announced_in(plan),
    ) == ([ROOT_TOKEN], (), ["shop_users"])
    lineage = after(lineage, plan)
    assert watermark_micros(lineage) == 0

    plan = source.plan(lineage, ReadRequest(CLOCK + 10), lambda: read_progress)
    assert [str(first)] == [file.path for file in files_in(plan)]
    lineage = after(lineage, plan)
    assert watermark_micros(lineage) == CLOCK + 9
    read_progress |= {file.path: file.version for file in files_in(plan)}
    assert source.plan(lineage, ReadRequest(CLOCK + 20), lambda: read_progress).windows == ()


def test_a_backlog_moves_the_position_by_one_until_its_last_cycle(tmp_path: Path) -> None:
    """No cut says that it has all files while some are left; the plan has the age of the oldest of these."""
    folder, source = StreamFolder(tmp_path), source_of(tmp_path, max_files=2)
    paths = [folder.write([event("users", number)]) for number in range(3)]
    for at_s, path in enumerate(paths, start=100):
        os.utime(path, (at_s, at_s))
    lineage, read_progress = begin(source.start_micros()), dict[str, str]()
    lineage = after(lineage, source.plan(lineage, ReadRequest(CLOCK), lambda: read_progress))
    plan = source.plan(lineage, ReadRequest(CLOCK + 10), lambda: read_progress)
    assert (len(files_in(plan)), plan.end_micros, plan.left_since_micros) == (2, CLOCK, 102_000_000)
    lineage = after(lineage, plan)
    read_progress |= {file.path: file.version for file in files_in(plan)}
    plan = source.plan(lineage, ReadRequest(CLOCK + 20), lambda: read_progress)
    assert (len(files_in(plan)), plan.end_micros, plan.left_since_micros) == (1, CLOCK + 19, None)


def test_chosen_objects_are_read_alone(tmp_path: Path) -> None:
    """Partitions of Dagster are objects, by the names of their folders."""
    folder, source = StreamFolder(tmp_path), source_of(tmp_path)
    for table in ("users", "orders"):
        folder.write([event(table)])
    lineage = begin(source.start_micros())
    lineage = after(lineage, source.plan(lineage, ReadRequest(CLOCK), dict))
    assert {"root", "shop_users", "shop_orders"} == {
        partition.key for partition in lineage.partitions.values()
    }
    plan = source.plan(lineage, ReadRequest(CLOCK + 10, keys={"shop_users"}), dict)
    assert (
        [window.token for window in plan.windows],
        [file.folder for file in files_in(plan)],
    ) == (["shop_users"], ["shop_users"])


def test_a_file_that_appears_between_two_rounds_of_a_cycle_waits(tmp_path: Path) -> None:
    """The round that reads new objects reads no file of an object that has reached the cycle's end."""
    folder, source = StreamFolder(tmp_path), source_of(tmp_path)
    folder.write([event("users")])
    read_progress = {file.path: file.version for file in source.store.list_files()}
    lineage = after(begin(1), source.plan(begin(1), ReadRequest(CLOCK), dict))
    lineage = after(lineage, source.plan(lineage, ReadRequest(CLOCK + 10), dict))
    new = folder.write([event("orders")])
    plan = source.plan(lineage, ReadRequest(CLOCK + 20), lambda: read_progress)
    assert (announced_in(plan), files_in(plan)) == (["shop_orders"], ())
    lineage = after(lineage, plan)
    late = folder.write([event("users", 2)])

    second = ReadRequest(CLOCK + 30, end_limit_micros=plan.end_micros)
    plan = source.plan(lineage, second, lambda: read_progress)
    assert [str(new)] == [file.path for file in files_in(plan)]
    assert {file.folder for file in files_in(plan)} <= {window.token for window in plan.windows}
    lineage = after(lineage, plan)
    read_progress |= {file.path: file.version for file in files_in(plan)}
    plan = source.plan(lineage, ReadRequest(CLOCK + 40), lambda: read_progress)
    assert [str(late)] == [file.path for file in files_in(plan)]


def test_a_file_that_could_not_be_read_asks_for_a_cycle_when_it_is_due(tmp_path: Path) -> None:
    """Until then only a user's run reads it; once it is gone, one cycle reports it."""
    folder, source = StreamFolder(tmp_path), source_of(tmp_path)
    path = folder.write([event("users")])
    lineage = after(begin(1), source.plan(begin(1), ReadRequest(CLOCK), dict))
    plan = source.plan(lineage, ReadRequest(CLOCK + 10), dict)
    (file,) = files_in(plan)
    lineage = after(lineage, plan)
    failure = FailedRead(file.version, CLOCK, "Broken")
    read_progress = {unread_path(file.path): failure.to_text()}
    assert source.plan(lineage, ReadRequest(failure.due_micros - 1), lambda: read_progress).windows == ()
    for request in (
        ReadRequest(failure.due_micros),
        ReadRequest(failure.due_micros - 1, ends_pauses=True),
        ReadRequest(failure.due_micros - 1, has_replay=True, ends_pauses=True),
    ):
        assert (file,) == files_in(source.plan(lineage, request, lambda: read_progress))
    path.unlink()
    plan = source.plan(lineage, ReadRequest(CLOCK + 20), lambda: read_progress)
    assert ((), {file.path: FORGOTTEN}) == (files_in(plan), plan.inputs["resolved"])
    assert (
        source.plan(lineage, ReadRequest(CLOCK + 20, keys={"shop_users"}), lambda: read_progress).windows
        == ()
    )
