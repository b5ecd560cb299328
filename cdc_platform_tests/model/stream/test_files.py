"""The files that a cycle reads, and the task that reads each."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.stream.files import (
    SourceFile,
    are_few,
    choose_files,
    deal_files,
    resolved_failures,
)
from cdc_platform.model.stream.unread import FIRST_PAUSE_S, FORGOTTEN, FailedRead, unread_path


def made(number: int, size_bytes: int = 10) -> SourceFile:
    """Return a file; the higher its number, the younger it is."""
    return SourceFile(f"folder/{number}.jsonl", "folder", size_bytes, number)


def test_what_has_been_read_in_its_version_is_left_out() -> None:
    """A file that was rewritten is read again, even if only its moment or only its size has changed."""
    old, rewritten, longer = made(1), made(2), made(3)
    read_progress = {old.path: old.version, rewritten.path: "1-10", longer.path: "3-9"}
    assert (rewritten, longer) == choose_files([longer, old, rewritten], read_progress).files


def test_a_backlog_is_read_in_several_cycles() -> None:
    """The oldest files come first, and at least one of any size."""
    files = [made(number, size_bytes=100) for number in range(5)]
    assert tuple(files[:2]) == choose_files(reversed(files), {}, max_files=2).files
    assert tuple(files[:3]) == choose_files(files, {}, max_bytes=300).files
    only = choose_files(files, {}, max_bytes=1)
    assert (tuple(files[:1]), files[1].modified_micros) == (only.files, only.left_since_micros)
    assert choose_files(files, {}).is_all


def failed(*files: SourceFile, micros: int = 0, tries: int = 1) -> dict[str, str]:
    """Return what a read progress has of files that could not be read."""
    return {
        unread_path(file.path): FailedRead(file.version, micros, "Broken", tries).to_text() for file in files
    }


def test_what_could_not_be_read_pauses() -> None:
    """It is chosen once it is due, or on request; after a rewrite it is like any other."""
    file, due_micros = made(1), FIRST_PAUSE_S * 1_000_000
    read_progress = failed(file)
    assert (
        choose_files([file], read_progress, clock_micros=due_micros - 1).files,
        choose_files([file], read_progress, clock_micros=due_micros - 1).is_all,
    ) == ((), True)
    assert (file,) == choose_files([file], read_progress, clock_micros=due_micros).files
    assert (file,) == choose_files([file], read_progress).files
    rewritten = made(1, size_bytes=11)
    assert (rewritten,) == choose_files([rewritten], read_progress, clock_micros=1).files


def test_what_could_not_be_read_crowds_nothing_out() -> None:
    """While there are others it has a tenth of a cycle, and the longest wait goes first."""
    bad = [made(number) for number in range(30)]
    good = [made(number) for number in range(100, 130)]
    read_progress = failed(*bad[1:], micros=7) | failed(bad[0], micros=8)
    choice = choose_files([*bad, *good], read_progress, max_files=20)
    assert (18, {bad[1].path, bad[10].path}) == (
        sum(file in good for file in choice.files),
        {file.path for file in choice.files if file in bad},
    )
    assert not choice.is_all
    # All others are chosen: the rest of the bad ones holds nothing.
    assert choose_files([*bad, *good], read_progress, max_files=40).is_all
    assert (good[0],) == choose_files([*bad, *good], read_progress, max_files=1).files
    alone = choose_files(bad, read_progress, max_files=20)
    assert (len(alone.files), alone.is_all) == (20, True)


def test_a_large_file_that_could_not_be_read_leaves_room() -> None:
    """Bytes are shared as files are, and one of the others at least is read."""
    bad, good = made(1, size_bytes=5_000), [made(number, size_bytes=100) for number in (2, 3)]
    choice = choose_files([bad, *good], failed(bad), max_bytes=1_000)
    assert (good[0], bad) == choice.files


def test_failed_reads_are_resolved() -> None:
    """A file that is gone, or is what had been read before, is to be read no more."""
    gone, restored, bad = made(1), made(2), made(3)
    read_progress = failed(gone, restored, bad) | {restored.path: restored.version}
    assert {gone.path: FORGOTTEN, restored.path: restored.version} == resolved_failures(
        [restored, bad], read_progress
    )
    assert resolved_failures([bad], {}) == {}


@given(st.lists(st.integers(0, 10**9), max_size=40, unique=True), st.integers(1, 8))
def test_every_file_is_dealt_once(sizes: Sequence[int], max_tasks: int) -> None:
    """No task gets more than another by more than one file's bytes, and none is left without work."""
    files = [made(number, size) for number, size in enumerate(sizes)]
    tasks = deal_files(files, max_tasks)
    assert sorted(files, key=str) == sorted((file for task in tasks for file in task), key=str)
    assert max(1, min(max_tasks, len(files))) == len(tasks)
    assert not files or all(tasks)


def test_few_files_are_few_in_number_and_in_bytes() -> None:
    """Neither many small files nor one large one are read where the cycle runs."""
    assert are_few([made(number, size_bytes=100) for number in range(64)])
    assert not are_few([made(number, size_bytes=100) for number in range(65)])
    assert not are_few([made(1, size_bytes=2**20), made(2, size_bytes=1)])
    assert are_few([replace(made(1, size_bytes=2**30), read_bytes=2**30 - 2**20)])
