"""Schema blocks that a spool stores once: its events have the name of a file in place of the block.

A block is several times as long as the row. Files are named by a digest of their content, so a name means the
same block in each spool of a process.
"""

import re
from hashlib import sha256
from pathlib import Path
from typing import Final

from cdc_platform.errors import SpoolUnusable
from cdc_platform.private_files import make_private_folder, write_whole

FOLDER: Final = "schemas"
_NAME: Final = re.compile(rf'"({FOLDER}/[0-9a-f]{{32}}\.json)"', re.ASCII)
_NAMED: Final = re.compile(rf'(?<="schema":){_NAME.pattern}', re.ASCII)
_spools: set[Path] = set()


class SpoolAbsent(LookupError):
    """An event has the name of a block, and this process reads no spool."""


def store_block(spool: Path, block: str) -> str:
    """Store a block, unless the spool has it, and return the name of its file.

    Raises:
        OSError: the spool cannot be written.
    """
    name = f"{FOLDER}/{sha256(block.encode()).hexdigest()[:32]}.json"
    if not (spool / name).exists():
        make_private_folder(spool / FOLDER)
        write_whole(spool / name, block)
    return name


def use_blocks_of(spool: Path) -> None:
    """Let this process read the blocks of a spool."""
    _spools.add(spool)


def read_block(text: str) -> str:
    """Return a block: the text itself, or the content of the file that it names.

    Raises:
        SpoolAbsent: it names a file, and this process reads no spool.
        SpoolUnusable: no spool of this process has the file.
    """
    name = _NAME.fullmatch(text)
    if name is not None and not _spools:
        raise SpoolAbsent(
            f"its schema block is the file `{name[1]}` of the spool of an embedded engine. Lines of a spool "
            "can be read with `input.engine` only"
        )
    return text if name is None else _read(name[1])


def with_blocks(text: str) -> str:
    """Return the text of an event with its blocks: it can be decoded without the spool.

    Raises:
        SpoolUnusable: no spool of this process has one of them.
    """
    return _NAMED.sub(lambda name: _read(name[1]), text) if _spools else text


def _read(name: str) -> str:
    for spool in _spools:
        if (spool / name).exists():
            return (spool / name).read_text(encoding="utf-8")
    raise SpoolUnusable(
        f"The spool lacks the file `{name}`, which states the types of its events. Put it back; the spool: "
        f"{', '.join(map(str, sorted(_spools)))}"
    )
