"""Comments of the source's tables and columns, which the engine writes to its spool when it starts."""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from cdc_platform.errors import SpoolUnusable
from cdc_platform.model.base.decoding_errors import MALFORMED
from cdc_platform.model.base.stored_texts import parse_stored


@lru_cache(maxsize=8)
def comments_by_table(
    path: Path, _written_ns: int, table_name: str, database: str, captured: str
) -> Mapping[str, Mapping[str, str]]:
    """Return the comments of a spool by table of the lake and column; every table asks in every cycle.

    Only tables whose SCHEMA.TABLE matches the expression ``captured`` count, because others may have the same
    name in the lake. Of several tables that count and have one name, the first one gives all comments.

    Raises:
        SpoolUnusable: the file is damaged.
    """
    is_captured = re.compile(captured, re.IGNORECASE).fullmatch
    try:
        comments = parse_stored(path.read_text(encoding="utf-8"), list[tuple[str, str, str, str]])
    except MALFORMED as error:
        raise SpoolUnusable(
            f"The comments of the source's tables are damaged ({error}). Delete the file, which the engine "
            f"writes again when it starts: {path}"
        ) from error
    tables: dict[str, tuple[str, dict[str, str]]] = {}
    for schema, table, column, comment in sorted(comments):
        if is_captured(f"{schema}.{table}"):
            name = table_name.format(database=database, schema=schema, table=table)
            owner, of_table = tables.setdefault(name, (f"{schema}.{table}", {}))
            if owner == f"{schema}.{table}":
                of_table[column] = comment
    return {name: of_table for name, (_, of_table) in tables.items()}
