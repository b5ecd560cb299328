"""How far files of events have been read, as the read progress has it."""

from dataclasses import dataclass
from typing import Final

from cdc_platform.model.stream.files import SourceFile

STATE: Final = "decoder state"
"""What the read progress has besides files: what the decoder knows, as its version."""

PASSED: Final = "transactions passed"
"""The same for the transaction buffer: up to which place in the order of commits transactions have passed."""


_HELD: Final = "+"


@dataclass(frozen=True)
class FileProgress:
    """So many lines of a file have entered the log, in a version of it; a file may grow, but not shrink.

    ``is_held`` tells that it has more, which wait for what is to come in other files.
    """

    version: str | None = None
    lines: int = 0
    is_held: bool = False

    @classmethod
    def of(cls, text: str | None) -> "FileProgress":
        """Return the progress of a text of the read progress; None is that of a file that nobody has read."""
        if text is None:
            return cls()
        version, _, lines = text.rpartition("#")
        return cls(version, int(lines.removesuffix(_HELD)), lines.endswith(_HELD))

    def to_text(self) -> str:
        """Return the text that `of` reads."""
        return f"{self.version}#{self.lines}{_HELD if self.is_held else ''}"

    def lacks(self, file: SourceFile) -> bool:
        """Whether the file has been written since."""
        return self.version != file.version
