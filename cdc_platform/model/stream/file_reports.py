"""Reports on what a cycle read of an event source: one row of the raw table each."""

from dataclasses import dataclass

from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.model.base.timestamps import is_moment


@dataclass(frozen=True, slots=True)
class Waiting:
    """An incomplete transaction: ``seen`` of ``expected`` events have arrived; ``expected`` may be unknown.

    ``since_micros`` is its commit time, None if unknown.
    """

    transaction_id: str
    since_micros: int | None
    seen: int
    expected: int | None


@dataclass(frozen=True, slots=True)
class FileReport:
    """The report on a file, or on a partition or state that the read progress records like a file.

    Args:
        version: its version in the read progress once it has been read.
        is_read: whether it has been read.
        events: number of its events.
        faults: number of its events that cannot be used.
        size_bytes: its size.
        error: the reason why it could not be read.
        waiting: incomplete transactions that hold back later ones.
        again_since_micros: earliest commit time of the transactions that arrived again.
    """

    version: str
    is_read: bool
    events: int = 0
    faults: int = 0
    size_bytes: int = 0
    error: str | None = None
    waiting: tuple[Waiting, ...] = ()
    again_since_micros: int | None = None

    @classmethod
    def from_text(cls, text: str) -> "FileReport":
        """Parse the text of a report that a cycle wrote.

        Raises:
            ValueError, RecursionError: the text is not a report.
        """
        report = parse_stored(text, cls)
        moments = [report.again_since_micros, *(transaction.since_micros for transaction in report.waiting)]
        if not all(micros is None or is_moment(micros) for micros in moments):
            raise ValueError(f"{moments} are not moments")
        return report
