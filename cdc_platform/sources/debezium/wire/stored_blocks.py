"""Schema blocks that a spool stores once: its events have the name of a file in place of the block.

A block is several times as long as the row. Files are named by a digest of their content, so a name means the
same block in each spool of a process.
"""

import re
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from cdc_platform.errors import SpoolUnusable
from cdc_platform.private_files import make_private_folder, write_whole

FOLDER: Final = "schemas"
_NAME: Final = re.compile(rf'"({FOLDER}/[0-9a-f]{{32}}\.json)"', re.ASCII)
_NAMED: Final = re.compile(rf'("(?:key|value)":{{"schema":){_NAME.pattern}', re.ASCII)
"""The name before a key or value: a row may have a column `schema` with the same text."""
_spools: set[Path] = set()


class SpoolAbsent(LookupError):
    """An event has the name of a block, and this process reads no spool."""


def store_block(spool: Path, block: str) -> str:
    """Store a block, unless the spool has it, and return the name of its file.

    Raises:
        OSError: the spool cannot be written.
    """
    name = _name_of(block.encode())
    if _stored_in(spool, name) is None:
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
        SpoolUnusable: no spool of this process has the whole file.
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
        SpoolUnusable: no spool of this process has the whole file of one of them.
    """
    return _NAMED.sub(lambda part: part[1] + _read(part[2]), text) if _spools else text


def _name_of(block: bytes) -> str:
    return f"{FOLDER}/{sha256(block).hexdigest()[:32]}.json"


def _stored_in(spool: Path, name: str) -> str | None:
    """Return a block; None if the spool lacks its file, or has another content in it."""
    with suppress(OSError):
        block = (spool / name).read_bytes()
        return block.decode() if _name_of(block) == name else None
    return None


def _read(name: str) -> str:
    # Another thread may open a further pipeline meanwhile.
    for spool in tuple(_spools):
        if (block := _stored_in(spool, name)) is not None:
            return block
    raise SpoolUnusable(
        f"The spool lacks the file `{name}`, which states the types of its events, or it was changed or "
        "cannot be read. Put it back, and grant permission to read it; the spool: "
        f"{', '.join(map(str, sorted(_spools)))}"
    )
