"""Schemas that JSON files borrow: from a schema file, or from an Avro file, of the same `schema_key`.

Datastream begins the names of its files with the key: `KEY_READMETHOD_N_N_N.EXTENSION`.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Final

from cdc_platform.errors import RecordUnreadable
from cdc_platform.model.stream.files import SourceFile
from cdc_platform.sources.datastream.files.avro_files import schema_of_avro
from cdc_platform.sources.datastream.files.avro_schemas import fields_of_schema
from cdc_platform.sources.datastream.files.container import MAGIC
from cdc_platform.sources.datastream.settings.bounds import Bounds
from cdc_platform.sources.datastream.values.types import Fields
from cdc_platform.sources.file_store import FileStore

SCHEMA_SUFFIXES: Final = (".avsc", ".schema")
AVRO_SUFFIX: Final = ".avro"
MAX_OFFERS: Final = 3
"""Avro files of a key that are searched for its schema; an empty or truncated file contains none."""

Offers = Mapping[str, tuple[SourceFile, ...]]
"""Files that may contain the columns of a `schema_key`, the best one first."""


def key_of_name(path: str) -> str:
    """Return the `schema_key` that the name of a file begins with."""
    return path.rpartition("/")[2].partition("_")[0].partition(".")[0]


def is_schema(file: SourceFile) -> bool:
    """Return whether a file holds a schema, and no events."""
    return file.path.endswith(SCHEMA_SUFFIXES)


def offered_schemas(all_files: Iterable[SourceFile], files_to_read: Iterable[SourceFile]) -> Offers:
    """Return those of all files that provide schemas for the files to be read, which may be JSON."""
    keys = {key_of_name(file.path) for file in files_to_read}
    offers: dict[str, list[SourceFile]] = {}
    for file in all_files:
        if file.path.endswith((*SCHEMA_SUFFIXES, AVRO_SUFFIX)) and key_of_name(file.path) in keys:
            offers.setdefault(key_of_name(file.path), []).append(file)
    return {
        key: tuple(sorted(files, key=lambda file: (not is_schema(file), file.path))[:MAX_OFFERS])
        for key, files in offers.items()
    }


def borrowed_schemas(
    location: str, file: SourceFile, offers: Offers, data: bytes, bounds: Bounds
) -> Mapping[str, Fields]:
    """Return the columns of a file's events, by `schema_key`, from other files; empty if none provides them.

    Args:
        location: the stream's folder.
        file: the file.
        offers: files that may contain schemas.
        data: the file's bytes; an Avro file has its own schema.
        bounds: limits for schemas.

    Raises:
        RecordUnreadable: there is a schema file, but it holds no schema.
        SourceError: it cannot be read.
    """
    if data.startswith(MAGIC):
        return {}
    key = key_of_name(file.path)
    for offer in offers.get(key, ()):
        fields = _fields_of(location, key, offer, bounds)
        if fields is not None:
            return {key: fields}
    return {}


# A worker's process outlives its tasks; the files of a key share their schema.
@lru_cache(maxsize=1024)
def _fields_of(location: str, key: str, offer: SourceFile, bounds: Bounds) -> Fields | None:
    data = FileStore(location, ()).read(offer.path)
    if not is_schema(offer):
        named_fields = schema_of_avro(BytesIO(data), bounds)
        return named_fields[1] if named_fields is not None and named_fields[0] == key else None
    try:
        return fields_of_schema(data.decode(), bounds)
    except ValueError as error:
        raise RecordUnreadable(
            f"The schema file holds no valid schema, so the files of its key are not read; repair it, or "
            f"remove it: {offer.path} ({error})"
        ) from error
