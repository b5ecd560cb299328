"""The spool: a folder of JSON-line files, which the embedded engine writes and a reader reads.

A file is named by the offset of its first line, like a segment of a Kafka partition, by the number of its
lines, and by an identity: no other file has its name, also if somebody empties the spool and offsets begin
again. Files appear as a whole: each is written under another name, forced to disk and renamed. Offsets only
grow, because the newest file is never deleted. A line is an object with topic, key, value, headers,
partition, offset and timestamp; its schema blocks are files of the folder `schemas`, which stay.
"""

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc_platform.errors import OffsetsLost, SettingError, SlotInUse, SpoolUnusable
from cdc_platform.private_files import PART, force_to_disk, make_private_folder, open_private, write_whole
from cdc_platform.sources.debezium.engine.spool_files import NAME, SUFFIX, SpoolFile, reported_as_unusable

FORMAT_VERSION: Final = 3


@dataclass(frozen=True)
class Spool:
    """A spool's folder."""

    folder: Path

    @property
    def offsets(self) -> Path:
        """The engine's file with the position in the source up to which the spool is complete."""
        return self.folder / "offsets.dat"

    @property
    def offsets_copy(self) -> Path:
        """Copy of that file, which is always complete: the engine may die while it writes its own."""
        return self.folder / "offsets.copy"

    @property
    def log(self) -> Path:
        """The engine's own log."""
        return self.folder / "engine.log"

    @property
    def failure(self) -> Path:
        """Failure of an engine that has ended, until it is started again."""
        return self.folder / "failure.json"

    @property
    def comments(self) -> Path:
        """Comments of the source's tables and columns, as they were at the newest start of an engine."""
        return self.folder / "comments.json"

    @property
    def tables(self) -> Path:
        """Identifiers of the source's tables whose rows, and not only changes, the spool has."""
        return self.folder / "tables.json"

    @property
    def signals(self) -> Path:
        """Signals to the connector, which empties the file."""
        return self.folder / "signals.jsonl"

    def make_folder(self) -> None:
        """Create the folder if it is missing; only its owner can access it, since it holds rows."""
        make_private_folder(self.folder)

    def files(self, from_offset: int = 0) -> list[SpoolFile]:
        """Return the complete files that have events at or after an offset, in order; always the newest one.

        Raises:
            SpoolUnusable: the folder cannot be read.
        """
        # Unlike `glob`, which skips a folder that cannot be read.
        paths: list[Path] = []
        with reported_as_unusable(self.folder), suppress(FileNotFoundError):
            paths = [*self.folder.iterdir()]
        files = sorted(file for path in paths if (file := SpoolFile.of(path)) is not None)
        return [file for file in files[:-1] if file.next_offset > from_offset] + files[-1:]

    def delete_read(self, lines: Mapping[str, int], written_before_s: float) -> int:
        """Delete the oldest files that have been read completely; return the number of files.

        The newest file stays, since it determines the next offsets.

        Args:
            lines: number of lines that the lake has of each file, by its name.
            written_before_s: files that were written later stay, in seconds since 1970.

        Raises:
            SpoolUnusable: the folder cannot be read or written.
        """
        count = 0
        with reported_as_unusable(self.folder):
            for file in self.files()[:-1]:
                is_whole = lines.get(file.path.name, 0) >= file.count
                with suppress(FileNotFoundError):  # another process may delete it first
                    if not is_whole or file.path.stat().st_mtime >= written_before_s:
                        break
                    file.path.unlink()
                    count += 1
            if count:
                # A file that came back after a power failure would be an unknown one.
                force_to_disk(self.folder)
        return count

    def find_forgettable(self, lines: Mapping[str, int]) -> frozenset[str]:
        """Return the names of files that have been read completely and deleted, before the oldest one left.

        No other file ever has such a name, so nothing has to be known of it any more. Only the file of the
        last line that the lake has shows which ones follow.

        Args:
            lines: number of lines that the lake has of each file, by its name.

        Raises:
            SpoolUnusable: the folder cannot be read.
        """
        oldest_offset = min((file.first_offset for file in self.files()), default=0)
        offsets = _offsets_of(lines)
        newest_end = max((offset + lines[name] for name, offset, _ in offsets), default=0)
        return frozenset(
            name
            for name, offset, count in offsets
            if lines[name] >= count and offset + count <= oldest_offset and offset + count < newest_end
        )

    def require_next(self, lines: Mapping[str, int]) -> int:
        """Check that the spool has the next events after the lake's last one, without a gap.

        Args:
            lines: number of lines that the lake has of each file, by its name.

        Returns:
            the offset up to which every event is in the lake or in a file. A list of the folder that is made
            while an engine writes may have a later file and lack an earlier one.

        Raises:
            OffsetsLost: events were deleted, or the files are not those that the lake has read.
            SpoolUnusable: the folder cannot be read.
        """
        offsets = _offsets_of(lines)
        log_end = max((offset + lines[name] for name, offset, _count in offsets), default=0)
        files = self.files()
        file_names = {file.path.name for file in files}
        for name, offset, count in offsets:
            # Such a file is not deleted: the lake waits for the rest of its lines, or of a transaction.
            if lines[name] < count and name not in file_names:
                gap = f"{offset + lines[name]} to {offset + count - 1}"
                self._raise_lost(log_end, f"lacks those from number {gap}")
        # The newest file stays, so the spool always reaches what the lake has.
        if log_end and (not files or files[-1].next_offset < log_end):
            self._raise_lost(log_end, f"ends before number {files[-1].next_offset}" if files else "is empty")
        next_offset = log_end
        for file in files:
            if file.first_offset < next_offset and file.path.name not in lines:
                self._raise_lost(log_end, f"has other ones in the file {file.path.name}")
            if file.first_offset > next_offset:
                if next_offset in {spool_file.first_offset for spool_file in self.files()}:
                    break
                self._raise_lost(log_end, f"lacks those from number {next_offset} to {file.first_offset - 1}")
            next_offset = max(next_offset, file.next_offset)
        return next_offset

    def _raise_lost(self, log_end: int, state: str) -> None:
        raise OffsetsLost(
            f"The lake has the events before number {log_end} of the spool {self.folder}, which {state}: "
            "files were deleted, replaced or restored from an older copy, or the lake is new or was restored "
            "from a copy that is older than `input.engine.keep_spool_s`. Put the files back, or "
            "restore a newer copy of the lake; otherwise begin a new lake, spool and slot, which take a new "
            "snapshot of the source."
        )

    def next_offset(self) -> int:
        """Return the offset of the next event to write.

        Raises:
            SpoolUnusable: the folder cannot be read.
        """
        files = self.files()
        return files[-1].next_offset if files else 0

    def has_writer(self) -> bool:
        """Return whether an engine is writing to the spool."""
        try:
            with self._lock():
                return False
        except SlotInUse:
            return True

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with reported_as_unusable(self.folder):
            self.make_folder()
            lock = open_private(self.folder / "engine.lock", "ab")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise SlotInUse(
                    "Another engine is writing to the spool: stop it, or give this one its own spool and "
                    f"slot. Folder: {self.folder}"
                ) from error
            yield

    @contextmanager
    def open_writer(self, identity: Mapping[str, str]) -> Iterator["SpoolWriter"]:
        """Yield the only writer of the spool.

        Args:
            identity: the origin of the spool's events, which must not change after its creation.

        Raises:
            SpoolUnusable: the folder cannot be written, or another version wrote it.
            SlotInUse: another engine is writing to it.
            SettingError: its events have another origin.
        """
        with self._lock():
            with reported_as_unusable(self.folder):
                self.require_identity(identity)
                for leftover in self.folder.glob(f"*{SUFFIX}{PART}"):
                    leftover.unlink()
                self.failure.unlink(missing_ok=True)
                writer = SpoolWriter(self, identity, self.next_offset())
            yield writer

    def require_identity(self, identity: Mapping[str, str]) -> None:
        """Check that a spool has events of one source, in files that this version knows; a new one has none.

        Raises:
            SpoolUnusable: another version wrote it.
            SettingError: it has events of another source.
        """
        path = self.folder / "spool.json"
        if not path.exists():
            return
        members = json.loads(path.read_text(encoding="utf-8"))
        if members.get("format_version") != FORMAT_VERSION:
            raise SpoolUnusable(
                f"The spool has the format {members.get('format_version')} of another version, and this one "
                f"knows {FORMAT_VERSION}: install that version, or begin a new lake, spool and slot. "
                f"Folder: {self.folder}"
            )
        for name, value in identity.items():
            if members.get(name) != value:
                raise SettingError(
                    "input.engine.spool",
                    f"is the spool of another source: its {name} is `{members.get(name)}`, not `{value}`. "
                    f"Choose another folder, and begin a new lake or pipeline for it: {self.folder}",
                )


def _offsets_of(names: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return the files of a spool among some names, each with its first offset and its number of lines."""
    return [(name, int(match[1]), int(match[2])) for name in names if (match := NAME.fullmatch(name))]


class SpoolWriter:
    """Writes events to a spool, one file per batch."""

    def __init__(self, spool: Spool, identity: Mapping[str, str], next_offset: int) -> None:
        self._spool, self._identity, self.next_offset = spool, identity, next_offset

    def write(self, events: Sequence[str], timestamp_millis: int) -> Path:
        """Write a batch of events as one file, and return its path once it is on disk.

        Args:
            events: members of each event's JSON object, without braces, offset and timestamp.
            timestamp_millis: when the events were captured.

        Raises:
            DiskFull: there is no space left.
            SpoolUnusable: the folder is gone.
        """
        file = SpoolFile.new(self._spool.folder, self.next_offset, len(events))
        lines = [
            f'{{{event},"partition":0,"offset":{offset},"timestamp":{timestamp_millis}}}\n'
            for offset, event in enumerate(events, self.next_offset)
        ]
        with reported_as_unusable(self._spool.folder):
            self._keep_identity()
            write_whole(file.path, "".join(lines))
        self.next_offset = file.next_offset
        return file.path

    def _keep_identity(self) -> None:
        """Store the origin of the events once there are any, because a first start may be a mistake."""
        path = self._spool.folder / "spool.json"
        if not path.exists():
            write_whole(path, json.dumps({"format_version": FORMAT_VERSION, **self._identity}))

    def keep_offsets(self) -> None:
        """Copy the engine's file of offsets after the engine has written it."""
        with reported_as_unusable(self._spool.folder):
            if self._spool.offsets.exists():
                write_whole(self._spool.offsets_copy, self._spool.offsets.read_bytes())
