"""Reports on what a cycle has read of a source that hands out events: one row of the raw table each."""

from dataclasses import dataclass

from cdc_platform.model.base.stored_texts import parse_stored
from cdc_platform.model.base.timestamps import is_moment


@dataclass(frozen=True, slots=True)
class Waiting:
    """A transaction of which more is to come: ``seen`` of ``expected`` events, None where nothing shows.

    ``since_micros`` is when it committed, None where nothing shows.
    """

    transaction_id: str
    since_micros: int | None
    seen: int
    expected: int | None


@dataclass(frozen=True, slots=True)
class FileReport:
    """The report on a file, or on a partition or state that the read progress has like one.

    Args:
        version: what the read progress has of it once it has been read.
        is_read: whether it has been read.
        events: how many events it had.
        faults: how many of them cannot be used.
        size_bytes: its size.
        error: why it could not be read.
        waiting: transactions that hold back what comes after them.
        again_since_micros: when the first was committed of the transactions that have passed before.
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
        """Return the report of a text that a cycle has written.

        Raises:
            ValueError, RecursionError: the text is no report.
        """
        report = parse_stored(text, cls)
        moments = [report.again_since_micros, *(transaction.since_micros for transaction in report.waiting)]
        if not all(micros is None or is_moment(micros) for micros in moments):
            raise ValueError(f"{moments} are no moments")
        return report
