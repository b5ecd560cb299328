"""Parts of a database whose changes the connector cannot capture, and the properties that leave them out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdc_platform.errors import ReplicationRefused
from cdc_platform.sources.debezium.engine.new_tables import expression_of, expressions_of
from cdc_platform.sources.debezium.settings.engine_settings import EngineInput

UNSENT_COLUMNS: Final = """
    SELECT json_agg(n.nspname || '.' || c.relname || '.' || a.attname)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    LEFT JOIN pg_publication_tables p
        ON ? <> 'filtered' AND p.pubname = ? AND p.schemaname = n.nspname AND p.tablename = c.relname
    WHERE c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
    AND NOT coalesce(a.attnum = ANY (i.indkey), false)
    -- As JSON, since PostgreSQL 14 has no lists of columns.
    AND (a.attgenerated <> '' OR NOT coalesce(jsonb_exists(to_jsonb(p) -> 'attnames', a.attname), true))
"""
UNLOGGED: Final = """
    SELECT json_object_agg(n.nspname || '.' || c.relname, rn.nspname || '.' || r.relname)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_class r ON c.relispartition AND r.oid = pg_partition_root(c.oid)
    LEFT JOIN pg_namespace rn ON rn.oid = r.relnamespace
    WHERE c.relkind = 'r' AND c.relpersistence = 'u'
"""
PARENTS: Final = """
    SELECT json_object_agg(
        n.nspname || '.' || c.relname, quote_ident(n.nspname) || '.' || quote_ident(c.relname))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)
"""
_PLAIN_NAME: Final = re.compile(r'[\w."$ -]+')
_SELECTS: Final = "snapshot.select.statement.overrides"


@dataclass(frozen=True)
class Uncaptured:
    """Parts of the database whose changes the connector cannot capture.

    Args:
        columns: columns outside of keys whose changes are not sent, as SCHEMA.TABLE.COLUMN: generated ones,
            and those that the publication leaves out.
        unlogged: unlogged tables, as SCHEMA.TABLE; a partition with the table whose rows it has.
        parents: quoted names of tables that others inherit, by SCHEMA.TABLE: queries of them return rows of
            the others, too.
    """

    columns: Sequence[str]
    unlogged: Mapping[str, str | None]
    parents: Mapping[str, str]

    def check(self, settings: EngineInput) -> None:
        """Check that nothing is chosen that can neither be captured nor be left out.

        Raises:
            ReplicationRefused: rows would stay in the lake as a snapshot has read them.
        """
        for partition, root in self.unlogged.items():
            if root is not None and settings.joins_partitions and settings.selects(root):
                raise ReplicationRefused(
                    f"The partition `{partition}` of `{root}` is unlogged, so no change of its rows arrives. "
                    f"Run `ALTER TABLE ... SET LOGGED`, or leave `{root}` out with `tables`. Source: "
                    f"{settings.database_text()}"
                )
        for name, quoted in self.parents.items():
            if settings.selects(name) and _PLAIN_NAME.fullmatch(quoted) is None:
                raise ReplicationRefused(
                    f"Other tables inherit `{name}`, and with this name a snapshot would read their rows as "
                    "its own: rename it to letters, digits, `_`, `$`, `-` and spaces, or "
                    f"leave it out with `tables`. Source: {settings.database_text()}"
                )

    def properties(self, settings: EngineInput, own: Mapping[str, str]) -> dict[str, str]:
        """Return the properties of the connector that leave these parts out, given all others."""
        return {
            **self._column_properties(own),
            **self._table_properties(settings),
            **self._select_properties(own),
        }

    def _column_properties(self, own: Mapping[str, str]) -> dict[str, str]:
        """Leave columns out: a snapshot would read values that no change updates."""
        if not self.columns or "column.include.list" in own:
            return {}
        excluded = own.get("column.exclude.list")
        return {"column.exclude.list": ",".join(filter(None, (excluded, expressions_of(self.columns))))}

    def _table_properties(self, settings: EngineInput) -> dict[str, str]:
        """Leave tables out: the connector cannot add them to a publication, and would not start."""
        if not self.unlogged:
            return {}
        left_out = "|".join(map(expression_of, self.unlogged))
        entries = settings.tables or ("(?s:.*)",)
        return {
            "table.include.list": ",".join(f"(?!(?:{left_out})$)(?:{entry.strip()})" for entry in entries)
        }

    @property
    def selects(self) -> Mapping[str, str]:
        """Queries that read the rows of a table alone, without those of tables that inherit it, by its name.

        The connector takes names apart at commas, and as regular expressions.
        """
        return {
            quoted: f"SELECT * FROM ONLY {quoted}"
            for quoted in self.parents.values()
            if _PLAIN_NAME.fullmatch(quoted) is not None
        }

    def _select_properties(self, own: Mapping[str, str]) -> dict[str, str]:
        """Leave the rows of other tables out of snapshots, except where a query of the user reads a table."""
        selects = {f"{_SELECTS}.{name}": select for name, select in self.selects.items()}
        if not selects:
            return {}
        names = ",".join(filter(None, (own.get(_SELECTS), *self.selects)))
        return {**selects, _SELECTS: names, **{name: own[name] for name in selects.keys() & own.keys()}}
