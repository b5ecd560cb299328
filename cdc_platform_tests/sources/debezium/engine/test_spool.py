"""The spool: files that are whole and in order, offsets that only grow, one writer."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Final

import pytest

from cdc_platform.errors import DiskFull, OffsetsLost, SettingError, SlotInUse, SpoolUnusable
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.engine.spool_files import SpoolFile, reported_as_unusable
from cdc_platform.sources.debezium.wire.stored_blocks import store_block
from cdc_platform_tests.support.crash_points.local_files import dying_in, watched
from cdc_platform_tests.support.crash_points.points import (
    POINTS,
    Death,
    Effect,
    Failure,
    Moment,
    ProcessDeath,
)

SOURCE = {"database": "shop", "slot": "s", "topic_prefix": "cdc"}
EVENT = '"topic":"cdc.public.t","key":{{"id":{0}}},"value":{{"n":1.10}},"headers":{{}}'


def filled(folder: Path, *sizes: int) -> Spool:
    """Return a spool with a file of each size."""
    spool = Spool(folder / "spool")
    with spool.open_writer(SOURCE) as writer:
        for size in sizes:
            writer.write([EVENT.format(number) for number in range(size)], 1_700_000_000_000)
    return spool


def names(files: list[SpoolFile]) -> list[str]:
    """Return the names of files."""
    return [file.path.name for file in files]


def delete_before(spool: Spool, offset_exclusive: int) -> int:
    """Delete the files whose events are all before an offset, but not the newest; return their number."""
    lines = {file.path.name: offset_exclusive - file.first_offset for file in spool.files()}
    return spool.delete_read(lines, written_before_s=1e12)


def test_files_are_named_by_the_offset_of_their_first_event(tmp_path: Path) -> None:
    """Lines keep the engine's own text, digits and all, and get offsets that continue from file to file."""
    spool = filled(tmp_path, 2, 1)
    starts = ["00000000000000000000-2-", "00000000000000000002-1-"]
    assert starts == [name[:-14] for name in names(spool.files())]
    lines = [line for file in spool.files() for line in file.lines()]
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2]
    end = '"partition":0,"offset":1,"timestamp":1700000000000}'
    assert '{"topic":"cdc.public.t","key":{"id":1},"value":{"n":1.10},"headers":{},' + end == lines[1]


def test_a_reader_finds_where_it_was(tmp_path: Path) -> None:
    """Files from an offset on begin with the one that holds it."""
    spool = filled(tmp_path, 2, 3, 1)
    starts = {offset: [file.first_offset for file in spool.files(offset)] for offset in (0, 1, 2, 4, 5, 9)}
    assert starts == {0: [0, 2, 5], 1: [0, 2, 5], 2: [2, 5], 4: [2, 5], 5: [5], 9: [5]}


def test_what_the_lake_has_is_deleted_and_its_offsets_never_come_again(tmp_path: Path) -> None:
    """Files that are read in part stay, and so does the newest one, after which a spool continues."""
    spool = filled(tmp_path, 2, 3, 1)
    assert delete_before(spool, 4) == 1
    assert [file.first_offset for file in spool.files()] == [2, 5]
    assert delete_before(spool, 6) == 1
    assert [file.first_offset for file in spool.files()] == [5]
    assert spool.next_offset() == 6
    with spool.open_writer(SOURCE) as writer:
        assert writer.write([EVENT.format(1)], 0).name.startswith("00000000000000000006-1-")


def test_what_has_been_read_long_ago_is_deleted(tmp_path: Path) -> None:
    """Files read in part, young files and the newest file, which continues the offsets, all stay."""
    spool = filled(tmp_path, 2, 3, 1, 4)
    for file, age_s in zip(spool.files(), (90, 80, 70, 60), strict=True):
        os.utime(file.path, (1000 - age_s, 1000 - age_s))
    read = {file.path.name: lines for file, lines in zip(spool.files(), (2, 3, 0, 4), strict=True)}
    assert spool.delete_read(read, 1000 - 85) == 1
    assert spool.delete_read(read, 1000) == 1
    assert [file.first_offset for file in spool.files()] == [5, 6]
    whole = read | {names(spool.files())[0]: 1}
    assert [spool.delete_read(whole, 1000), spool.delete_read(whole, 1000)] == [1, 0]
    assert [file.first_offset for file in spool.files()] == [6]
    assert spool.next_offset() == 10


def test_only_deleted_files_before_those_left_are_forgettable(tmp_path: Path) -> None:
    """Nothing of an emptied spool is, nor a file read in part, nor the last one, which shows what follows."""
    spool = filled(tmp_path, 2, 3, 1, 4)
    read, (first, second, third, _) = read_whole(spool), (file.path for file in spool.files())
    first.unlink()
    third.unlink()
    assert spool.find_forgettable(read) == {first.name}
    second.unlink()
    assert spool.find_forgettable(read | {second.name: 2}) == {first.name, third.name}
    rest = {path.name: read[path.name] for path in (first, second, third)}
    assert spool.find_forgettable(rest) == {first.name, second.name}
    empty(spool)
    assert spool.find_forgettable(read) == frozenset()


def test_a_lake_that_lacks_deleted_events_is_reported(tmp_path: Path) -> None:
    """A lake from an older copy, or a new one, would continue with an unnoticed gap."""
    spool = filled(tmp_path, 2, 3, 1)
    assert spool.require_next({}) == 6
    first, second, third = names(spool.files())
    delete_before(spool, 5)
    assert spool.require_next({first: 2, second: 3, third: 1, "quarantine@5": 9}) == 6
    for older in ({}, {first: 2}, {first: 2, second: 2}):
        with pytest.raises(
            OffsetsLost, match=r"before number [024] of .* lacks those from number [024] to 4:"
        ):
            spool.require_next(older)


def read_whole(spool: Spool) -> dict[str, int]:
    """Return the lines that a lake has of each file if it has read all."""
    return {file.path.name: file.count for file in spool.files()}


def empty(spool: Spool) -> None:
    """Delete every file of a spool's folder, as a user might."""
    for path in spool.folder.iterdir():
        path.unlink()


def test_a_spool_that_somebody_emptied_is_reported(tmp_path: Path) -> None:
    """Before and after an engine writes again: its files have other names, so none counts as read."""
    spool = filled(tmp_path, 2, 3)
    read = read_whole(spool)
    empty(spool)
    with pytest.raises(OffsetsLost, match=r"before number 5 of .* is empty: files were deleted"):
        spool.require_next(read)
    filled(tmp_path, 2)
    assert not read.keys() & read_whole(spool).keys()
    with pytest.raises(OffsetsLost, match="ends before number 2:"):
        spool.require_next(read)
    filled(tmp_path, 4)
    with pytest.raises(
        OffsetsLost, match=r"has other ones in the file 0{20}-2-\w{8}\.jsonl: .* begin a new lake"
    ):
        spool.require_next(read)


def test_a_spool_that_somebody_restored_is_reported(tmp_path: Path) -> None:
    """Its engine would give the offsets of events that the lake has to later events."""
    spool = filled(tmp_path, 2, 3)
    read = read_whole(spool)
    spool.files()[1].path.unlink()
    with pytest.raises(OffsetsLost, match=r"before number 5 of .* ends before number 2:"):
        spool.require_next(read)
    filled(tmp_path, 4)
    with pytest.raises(OffsetsLost, match=r"has other ones in the file 0{19}2-4-"):
        spool.require_next(read)


def test_a_missing_file_that_is_not_read_is_reported(tmp_path: Path) -> None:
    """The lines of each file are in its name, so a gap shows before anything is read."""
    spool = filled(tmp_path, 2, 3, 1)
    first, second, third = spool.files()
    second.path.unlink()
    with pytest.raises(OffsetsLost, match="lacks those from number 2 to 4:"):
        spool.require_next({first.path.name: 1})
    assert spool.require_next({first.path.name: 2, second.path.name: 3}) == third.next_offset


def test_a_missing_file_whose_lines_wait_is_reported(tmp_path: Path) -> None:
    """A transaction waits in two files, of which the lake has read again up to its first line."""
    spool = filled(tmp_path, 2, 3, 1)
    first, second, _ = names(spool.files())
    waiting = {first: 1, second: 0}
    assert spool.require_next(waiting) == 6
    spool.files()[0].path.unlink()
    with pytest.raises(OffsetsLost, match="lacks those from number 1 to 1:"):
        spool.require_next(waiting)


def test_a_file_that_a_list_of_the_folder_lacks_is_read_later(tmp_path: Path) -> None:
    """A list that is made while an engine writes may have the second of two new files and lack the first."""
    spool = filled(tmp_path, 2, 3, 1)
    _, second, _ = spool.files()
    hidden = second.path.rename(tmp_path / second.path.name)
    listed: list[str] = []

    def appear(event: str, arguments: tuple[object, ...]) -> None:
        # After the first list, and before the second one. Python's hooks stay for ever.
        if len(listed) < 2 and event == "os.listdir" and str(arguments[0]) == str(spool.folder):
            listed.append(event)
            if len(listed) == 2:
                hidden.rename(second.path)

    sys.addaudithook(appear)
    assert spool.require_next({}) == 2
    assert spool.require_next({}) == 6


def test_what_was_not_finished_is_no_file(tmp_path: Path) -> None:
    """A writer that was killed leaves a part, which readers do not see and the next writer removes."""
    spool = filled(tmp_path, 1)
    part = spool.folder / "00000000000000000001-1-0123abcd.jsonl.part"
    part.write_text('{"topic":')
    assert [file.first_offset for file in spool.files()] == [0]
    with spool.open_writer(SOURCE):
        assert not part.exists()
    assert spool.next_offset() == 1


def test_a_spool_has_one_writer(tmp_path: Path) -> None:
    """A second engine is refused while the first one runs, and only then."""
    spool = filled(tmp_path)
    with spool.open_writer(SOURCE), pytest.raises(SlotInUse, match="stop it"), spool.open_writer(SOURCE):
        pass
    with spool.open_writer(SOURCE):
        pass


def test_a_spool_has_one_source(tmp_path: Path) -> None:
    """Events of two databases would get into one order that means nothing; a start without events is none."""
    with Spool(tmp_path / "spool").open_writer(SOURCE | {"database": "mistyped"}):
        pass
    spool = filled(tmp_path, 1)
    with (
        pytest.raises(SettingError, match="its database is `shop`, not `other`"),
        spool.open_writer(SOURCE | {"database": "other"}),
    ):
        pass


def test_a_spool_of_another_version_is_refused(tmp_path: Path) -> None:
    """Its files may mean something else."""
    spool = filled(tmp_path, 1)
    (spool.folder / "spool.json").write_text(json.dumps(SOURCE | {"format_version": 1}))
    with pytest.raises(SpoolUnusable, match="has the format 1 of another version"), spool.open_writer(SOURCE):
        pass


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """The advice comes with the folder's name; events stay at the source."""
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SpoolUnusable, match=r"No event is lost.*file/spool"),
        Spool(tmp_path / "file" / "spool").open_writer(SOURCE),
    ):
        pass


@pytest.mark.parametrize("failure", [Failure.READ_ONLY, Failure.BROKEN])
def test_files_that_cannot_be_deleted_are_an_error(tmp_path: Path, failure: Failure) -> None:
    """The error names the spool, which may be on another disk than the lake; later the files go."""
    spool = filled(tmp_path, 2, 3, 1)
    place = Death(1, Moment.BEFORE)
    with (
        POINTS.counted(place, failure=failure),
        watched(spool.folder),
        pytest.raises(SpoolUnusable, match=str(spool.folder)),
    ):
        delete_before(spool, 5)
    assert delete_before(spool, 5) == 2


def test_a_file_that_another_process_deletes_first_is_gone(tmp_path: Path) -> None:
    """Two pipelines may clear one spool at the same time."""
    spool = filled(tmp_path, 2, 3, 1)

    def delete(_death: Death, effect: Effect) -> None:
        if effect.target.endswith(".jsonl"):
            subprocess.run(["rm", effect.target], check=True)

    with POINTS.counted(witness=delete), watched(spool.folder):
        assert delete_before(spool, 5) == 0
    assert [file.first_offset for file in spool.files()] == [5]


def test_two_readers_delete_files_of_one_spool_at_once(tmp_path: Path) -> None:
    """Each passes over the files that the other one has deleted, and the newest one stays."""
    rounds = 30
    spool, start = filled(tmp_path, *([1] * rounds * 2)), Barrier(2, timeout=30)

    def delete(slower: int) -> None:
        for number in range(rounds):
            start.wait()
            delete_before(spool, 2 * number + 2 - slower)

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(delete, (0, 1))] == [None, None]
    assert ([2 * rounds - 1], 2 * rounds) == (
        [file.first_offset for file in spool.files()],
        spool.next_offset(),
    )


READS: Final[Mapping[str, Callable[[Spool], object]]] = {
    "": lambda spool: spool.require_next({}),
    "00000000000000000000-1-0123abcd.jsonl": lambda spool: [*spool.files()[0].lines()],
}


@pytest.mark.parametrize("name", READS)
def test_a_spool_that_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    """The error names the folder, also where the list of its files is what cannot be read."""
    spool = Spool(tmp_path / "spool")
    if name:
        (spool.folder / name).mkdir(parents=True)
    else:
        spool.folder.write_text("")
    with pytest.raises(SpoolUnusable, match=rf"cannot be read or written .*{spool.folder}"):
        READS[name](spool)


def test_the_age_of_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """The file may be on a disk that does not answer."""
    spool = filled(tmp_path, 1, 1)
    (first, _) = spool.files()
    first.path.unlink()
    first.path.symlink_to(first.path)
    with pytest.raises(SpoolUnusable, match=str(spool.folder)):
        spool.delete_read({first.path.name: 1}, 1e12)


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """It passes once there is room, so a pipeline that follows its source continues by itself."""
    expected = f"No space left on device: {tmp_path}"
    with pytest.raises(DiskFull, match=expected), reported_as_unusable(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_copy_of_the_offsets_is_whole(tmp_path: Path) -> None:
    """It is what the engine wrote when the batch was acknowledged."""
    spool = filled(tmp_path)
    with spool.open_writer(SOURCE) as writer:
        writer.keep_offsets()
        assert not spool.offsets_copy.exists()
        spool.offsets.write_bytes(b"position")
        writer.keep_offsets()
    assert spool.offsets_copy.read_bytes() == b"position"


class Capture:
    """An engine that sends again what it has not acknowledged, and a reader that deletes what it has."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool(folder / "spool")
        self.read: dict[int, str] = {}

    def run(self) -> None:
        """Send three batches of two events, each with a block and the engine's file of offsets; read them."""
        with self.spool.open_writer(SOURCE) as writer:
            while (sent := self._acknowledged()) < 6:
                event = EVENT.replace('{{"n":1.10}}', f'"{store_block(self.spool.folder, str(sent // 2))}"')
                writer.write([event.format(number) for number in range(sent, sent + 2)], 0)
                self.spool.offsets.write_text(str(sent + 2))
                writer.keep_offsets()
                self._read()
        self._read()

    def _acknowledged(self) -> int:
        offsets = self.spool.offsets, self.spool.offsets_copy
        return int(next((text for file in offsets if file.exists() and (text := file.read_text())), "0"))

    def _read(self) -> None:
        files = self.spool.files(len(self.read))
        for event in (json.loads(line) for file in files for line in file.lines()):
            assert self.read.setdefault(event["offset"], event["key"]["id"]) == event["key"]["id"]
            assert (self.spool.folder / event["value"]).read_text() == str(event["key"]["id"] // 2)
        delete_before(self.spool, len(self.read))


def test_a_death_at_any_file_of_a_spool_loses_nothing(tmp_path: Path) -> None:
    """If a file operation fails, offsets have no gap, and all events arrive."""
    with dying_in(tmp_path, None):
        Capture(tmp_path / "whole").run()
        effects = len(POINTS.effects)
    assert effects > 20
    for number in range(1, effects + 1):
        capture = Capture(tmp_path / str(number))
        with dying_in(tmp_path, Death(number, Moment.BEFORE)), pytest.raises(ProcessDeath):
            capture.run()
        capture.run()
        assert sorted(capture.read) == list(range(len(capture.read)))
        assert list(dict.fromkeys(capture.read[offset] for offset in sorted(capture.read))) == [*range(6)]


def test_a_spool_is_its_owners_alone(tmp_path: Path) -> None:
    """No other user of the machine reads the rows, also in a folder that an older version made."""
    (tmp_path / "spool").mkdir(mode=0o755)
    spool = filled(tmp_path, 1)
    assert spool.folder.stat().st_mode & 0o777 == 0o700
    assert [file.path.stat().st_mode & 0o777 for file in spool.files()] == [0o600]
