"""Exclusions of a change stream by its definition, and the differences between tables and source."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Final

from cdc_platform.model.base.names import is_reserved_column
from cdc_platform.model.base.timestamps import to_rfc3339
from cdc_platform.model.schema.column_versions import ColumnHistory
from cdc_platform.model.schema.evolution import SchemaHistory
from cdc_platform.model.schema.lake_tables import NOTHING_REFUSED, LakeTable, Refusals, describe_refusals


@dataclass(frozen=True)
class Exclusion:
    """The reasons for which a table of the lake may differ from the source, and the kinds of difference.

    ``missing`` rows are only in the source, ``surplus`` rows only in the lake, ``changed`` rows in both
    with different values.
    """

    reasons: tuple[str, ...] = ()
    missing: bool = False
    surplus: bool = False
    changed: bool = False

    def __or__(self, other: "Exclusion") -> "Exclusion":
        """Return both together."""
        return Exclusion(
            self.reasons + other.reasons,
            self.missing or other.missing,
            self.surplus or other.surplus,
            self.changed or other.changed,
        )


NOTHING: Final = Exclusion()

_OPTIONS: Final = {
    # A row whose insert is excluded may be updated later, and then lacks columns.
    "exclude_insert": Exclusion(missing=True, changed=True),
    "exclude_update": Exclusion(changed=True),
    "exclude_delete": Exclusion(surplus=True),
    "exclude_ttl_deletes": Exclusion(surplus=True),
    "allow_txn_exclusion": Exclusion(missing=True, surplus=True, changed=True),
}


def stream_exclusions(history: SchemaHistory) -> Exclusion:
    """Return what the change stream's present or past options exclude from all tables."""
    exclusions = (
        Exclusion((_option_text(history, name),), exclusion.missing, exclusion.surplus, exclusion.changed)
        for name, exclusion in _OPTIONS.items()
        if (name, "true") in {(option, value.lower()) for option, value in history.past_options}
    )
    return reduce(Exclusion.__or__, exclusions, NOTHING)


SHOWN_TABLES: Final = 20
"""Maximum number of tables that a finding names."""


def _option_text(history: SchemaHistory, name: str) -> str:
    is_now = history.options.get(name, "").lower() == "true"
    return f"the change stream {'has' if is_now else 'has had'} {name} = true"


def table_exclusions(history: SchemaHistory, table: ColumnHistory) -> Exclusion:
    """Return what is excluded from one table."""
    gap = Exclusion(
        (f"`{table.name}` was not watched for a while",), missing=True, surplus=True, changed=True
    )
    # A row that was never seen whole is NULL in the columns that its changes do not name.
    unseen = Exclusion((f"`{table.name}` was not copied",), missing=True, changed=True)
    exclusion = (gap if table.has_gap else NOTHING) | (unseen if table.is_uncopied else NOTHING)
    return stream_exclusions(history) | exclusion


def may_lack_rows(history: SchemaHistory, table: ColumnHistory) -> bool:
    """Return whether the log may lack insertions or deletions of a table."""
    exclusions = table_exclusions(history, table)
    return exclusions.missing or exclusions.surplus


def late_columns(table: ColumnHistory) -> tuple[str, ...]:
    """Return the columns whose older values the lake lacks because they were not watched at first."""
    return tuple(version.lake_name for version in table.live_versions if version.is_late)


def describe_findings(
    history: SchemaHistory, named_tables: Collection[str] = (), refusals: Refusals = NOTHING_REFUSED
) -> tuple[str, ...]:
    """Return a sentence for each difference between lake and source by design, or by the settings.

    Args:
        history: history of the source's schema.
        named_tables: tables that the settings name; only those with options can be unwatched.
        refusals: tables that the lake cannot have because of other tables.
    """
    stream = (
        f"{reason[0].upper()}{reason[1:]}: the tables lack the changes that it leaves out."
        for reason in stream_exclusions(history).reasons
    )
    keyless = (
        f"`{name}` has a primary key without columns, so it is not in the lake; only the change log has its "
        "changes. To have it in the lake, recreate it with a key column at the source."
        for name in sorted(history.keyless)
    )
    tables = (
        line
        for table in history.tables.values()
        if LakeTable(table.name) not in refusals
        for line in _table_findings(table)
    )
    waiting = (
        f"`{name}` is not watched: its `table_options` take effect once the change stream watches it."
        for name in sorted(history.other_names.intersection(named_tables) - history.tables.keys())
    )
    unknown = _unknown_tables(history, named_tables) if history.cycle else ()
    return (*stream, *keyless, *describe_refusals(refusals), *tables, *waiting, *unknown)


def _unknown_tables(history: SchemaHistory, named_tables: Collection[str]) -> Iterable[str]:
    """Yield a sentence for each named table without changes: an event source cannot list its tables."""
    known_names = ", ".join(f"`{name}`" for name in sorted(history.tables)[:SHOWN_TABLES]) or "none yet"
    more = ", ..." if len(history.tables) > SHOWN_TABLES else ""
    for name in sorted({*named_tables} - history.tables.keys() - history.other_names - history.keyless):
        yield (
            f"The settings name `{name}`, but no change has: `tables` and `table_options` have no effect on "
            f"it yet. If the name is wrong, the tables are: {known_names}{more}."
        )


def _table_findings(table: ColumnHistory) -> Iterable[str]:
    if table.is_watched:
        yield from _absent_columns(table)
    if table.has_gap:
        yield f"`{table.name}` was not watched for a while: the changes of that time are missing."
    if table.is_uncopied:
        yield (
            f"`{table.name}` was not copied: rows that it had before its first change in the log reach the "
            "lake once they change, and columns that their changes do not name read as NULL."
        )
    for version in table.live_versions:
        if version.is_late:
            since = to_rfc3339(version.since.micros) if version.since.micros is not None else "later"
            yield (
                f"`{table.name}`: the column `{version.name}` has only been watched since {since}: "
                "rows that have not changed since then read as NULL."
            )
        if not version.type.is_known:
            yield (
                f"`{table.name}`: the column `{version.name}` has the type {version.type.text}, which this "
                "version does not know: its values are kept as text."
            )
    if not table.is_watched:
        word = "was dropped" if table.is_dropped else "is no longer watched"
        yield f"`{table.name}` {word}; the lake keeps its last state."


def _absent_columns(table: ColumnHistory) -> Iterable[str]:
    """Yield a sentence for each reason for which the lake lacks columns of a watched table."""
    if table.unwatched:
        reserved_names = [name for name in table.unwatched if is_reserved_column(name)]
        names = [name for name in table.unwatched if name not in reserved_names]
        subject = f"`{table.name}`: columns"
        if names:
            yield f"{subject} that the change stream does not watch are not in the lake: {', '.join(names)}."
        if reserved_names:
            yield (
                f"{subject} with names that are reserved in the lake are in the change log only: "
                f"{', '.join(reserved_names)}. Rename them at the source to have them in the table."
            )
    if table.generated:
        yield (
            f"`{table.name}`: generated columns outside the key are not in the lake, because no change "
            f"stream sends them: {', '.join(table.generated)}. Compute them in a view of the table."
        )
