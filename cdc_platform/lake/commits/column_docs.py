"""Comments of a source's tables and columns, which Iceberg keeps as the `doc` of a field and a property."""

from collections.abc import Collection, Mapping
from typing import Final

from pyiceberg.table import Table

from cdc_platform.lake.commits.commits import conflicts_as
from cdc_platform.model.base.names import case_key
from cdc_platform.model.schema.table_schema import PRIMARY_KEY
from cdc_platform.visible import visible_line

COMMENT: Final = "comment"
"""Table property that Spark and Trino show as the comment of a table."""
MAX_DOC_CHARACTERS: Final = 255
"""Maximum number of characters of a column's comment: the limit of catalogs such as Glue and Hive."""


def describe_columns(table: Table, keys: Collection[str], comments: Mapping[str, str]) -> Table:
    """Give a merged table the comments of its source, and return the changed table.

    Key columns are still marked, in front of their comment. A column's comment becomes one line of limited
    length. The call is idempotent.

    Args:
        table: the table.
        keys: names of its key columns.
        comments: by column; that of "" is the table's own. If there are none, the table keeps what it has.

    Raises:
        CommitConflict: another run has changed the table's columns at the same time.
    """
    if not comments:
        return table
    texts = {case_key(name): visible_line(" ".join(text.split())) for name, text in comments.items()}
    marks = {case_key(name): PRIMARY_KEY for name in keys}
    changed = {}
    for field in table.schema().fields:
        name = case_key(field.name)
        doc = ": ".join(filter(None, (marks.get(name), texts.get(name))))
        if len(doc) > MAX_DOC_CHARACTERS:
            doc = f"{doc[: MAX_DOC_CHARACTERS - 1]}…"
        if doc != (field.doc or ""):
            changed[field.name] = doc
    own = comments.get("", "")
    if not changed and own == table.properties.get(COMMENT, ""):
        return table
    conflict = (
        f"Another run changed the columns of `{'.'.join(table.name())}` at the same time; repeat the run."
    )
    with conflicts_as(conflict), table.transaction() as transaction:
        transaction.set_properties({COMMENT: own})
        with transaction.update_schema() as update:
            for name, doc in changed.items():
                update.update_column((name,), doc=doc)
    return table.refresh()
