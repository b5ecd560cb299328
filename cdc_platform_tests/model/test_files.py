"""Which files a tick reads, and which task reads which."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.files import SourceFile, choose_files, deal_files, files_from_json, files_to_json


def made(number: int, size_bytes: int = 10, generation: str | None = None) -> SourceFile:
    """Return a file; the higher its number, the younger it is."""
    return SourceFile(f"folder/{number}.jsonl", "folder", size_bytes, number, generation)


def test_what_has_been_read_in_its_version_is_left_out() -> None:
    """A file that was written anew is read anew, by its generation where the store counts."""
    old, rewritten, counted = made(1), made(2), made(3, generation="7")
    ledger = {old.path: old.version, rewritten.path: "1-10", counted.path: "6"}
    assert (rewritten, counted) == choose_files([counted, old, rewritten], ledger).files


def test_a_backlog_is_read_in_several_ticks() -> None:
    """The oldest files come first, and one at least, however large it is."""
    files = [made(number, size_bytes=100) for number in range(5)]
    assert tuple(files[:2]) == choose_files(reversed(files), {}, most_files=2).files
    assert tuple(files[:3]) == choose_files(files, {}, most_bytes=300).files
    only = choose_files(files, {}, most_bytes=1)
    assert (tuple(files[:1]), False) == (only.files, only.is_all)
    assert choose_files(files, {}).is_all


@given(st.lists(st.integers(0, 10**9), max_size=40, unique=True), st.integers(1, 8))
def test_every_file_is_dealt_once(sizes: Sequence[int], most_tasks: int) -> None:
    """No task gets more than another by more than one file's bytes, and none is left without work."""
    files = [made(number, size) for number, size in enumerate(sizes)]
    tasks = deal_files(files, most_tasks)
    assert sorted(files, key=str) == sorted((file for task in tasks for file in task), key=str)
    assert max(1, min(most_tasks, len(files))) == len(tasks)
    assert not files or all(tasks)


def test_files_survive_as_text() -> None:
    """What the driver plans is what a task reads."""
    files = (made(1), made(2, generation="9"))
    assert files == files_from_json(files_to_json(files))
