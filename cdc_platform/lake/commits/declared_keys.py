"""The key of a merged table in Iceberg: required columns, and the table's identifier fields."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, FloatType, NestedField

from cdc_platform.lake.commits.commits import ancestors_of, conflicts_as, head, is_compaction
from cdc_platform.lake.commits.staging import is_staging
from cdc_platform.lake.manifests.stored_manifests import read_entries, read_manifests
from cdc_platform.model.base.names import case_key

DECLARED: Final = "cdc.key"
"""Table property with the reason why a key is not declared; unset if the key is declared."""
HAS_NULLS: Final = "has-nulls"
"""Value of the property after the first NULL in a key column: the key is never declared again."""
NOT_COMPACTED: Final = "0"
"""Value if data files lack a key column and no compaction has run; otherwise the id of the compaction."""


@dataclass(frozen=True)
class _Key:
    """Names of the required columns and of the identifier fields."""

    required: frozenset[str]
    identifier: frozenset[str]


NO_KEY: Final = _Key(frozenset(), frozenset())


def declare_key(table: Table, columns: Collection[str]) -> Table:
    """Declare the key of a table, and return the changed table.

    Key columns become required. They become the identifier fields as well, unless one is a floating-point
    number, which Iceberg forbids. If the table has data, they become required only if every data file
    has the column, and without a NULL: after a change of the key, once the files have been compacted. All
    other columns become optional. The call is idempotent.

    Args:
        table: the table, including the data of its branches.
        columns: names of the key columns; none for a table without a key, such as a history.

    Raises:
        CommitConflict: another run has changed the table's columns at the same time.
    """
    names = {case_key(name) for name in columns}
    fields = [field for field in table.schema().fields if case_key(field.name) in names]
    declared_key, key = _key_of(table), _declarable(fields)
    reason = table.properties.get(DECLARED)
    if declared_key == key:
        return table
    compaction = _newest_compaction(table)
    if reason in (HAS_NULLS, compaction):
        key = NO_KEY
    elif not _has_all_values(table, [field for field in fields if not field.required]):
        key, reason = NO_KEY, compaction
    else:
        reason = None
    return (
        table
        if declared_key == key and reason == table.properties.get(DECLARED)
        else _commit(table, key, reason)
    )


def allow_null_keys(table: Table) -> None:
    """Withdraw the declaration of a key before a NULL is written into one of its columns.

    Raises:
        CommitConflict: another run has changed the table's columns at the same time.
    """
    if table.properties.get(DECLARED) != HAS_NULLS:
        _commit(table, NO_KEY, HAS_NULLS)


def _key_of(table: Table) -> _Key:
    schema = table.schema()
    required_columns = frozenset(field.name for field in schema.fields if field.required)
    return _Key(required_columns, frozenset(schema.identifier_field_names()))


def _declarable(fields: Collection[NestedField]) -> _Key:
    names = frozenset(field.name for field in fields)
    is_forbidden = any(
        isinstance(field.field_type, (FloatType, DoubleType)) or not field.field_type.is_primitive
        for field in fields
    )
    return _Key(names, frozenset() if is_forbidden else names)


def _newest_compaction(table: Table) -> str:
    """Return the id of the newest compaction: a later one may rewrite the files that lack a column."""
    for snapshot in ancestors_of(table, head(table)):
        if is_compaction(snapshot):
            return str(snapshot.snapshot_id)
    return NOT_COMPACTED


def _has_all_values(table: Table, fields: Collection[NestedField]) -> bool:
    """Return whether no data file of any branch has a NULL in these columns, or lacks one of them."""
    return all(
        (file.null_value_counts or {}).get(field.field_id) == 0 for file in _files(table) for field in fields
    )


def _files(table: Table) -> Iterator[DataFile]:
    """Yield the data files of all branches, including those without live rows, which readers open, too."""
    lists = (read_manifests(table.io, snapshot) for snapshot in _branch_heads(table))
    manifests = {manifest.manifest_path: manifest for files in lists for manifest in files}
    for manifest in manifests.values():
        if manifest.content == ManifestContent.DATA:
            yield from (entry.data_file for entry in read_entries(table.io, manifest))


def _branch_heads(table: Table) -> Iterator[Snapshot]:
    """Yield the newest snapshots of `main` and of the branches that are not part of its history."""
    main = head(table)
    behind = {snapshot.snapshot_id for snapshot in ancestors_of(table, main)}
    if main is not None:
        yield main
    for name, ref in table.metadata.refs.items():
        snapshot = table.snapshot_by_id(ref.snapshot_id)
        # Staged files may be missing.
        is_branch = ref.snapshot_ref_type is SnapshotRefType.BRANCH and not is_staging(table, name)
        if is_branch and snapshot is not None and snapshot.snapshot_id not in behind:
            yield snapshot


def _commit(table: Table, key: _Key, reason: str | None) -> Table:
    conflict = (
        f"Another run changed the columns of `{'.'.join(table.name())}` at the same time; repeat the run."
    )
    with conflicts_as(conflict), table.transaction() as transaction:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            update.set_identifier_fields(*key.identifier)
            for field in table.schema().fields:
                if field.required != (field.name in key.required):
                    update.update_column((field.name,), required=not field.required)
        if reason is not None:
            transaction.set_properties({DECLARED: reason})
        elif DECLARED in table.properties:
            transaction.remove_properties(DECLARED)
    return table.refresh()
