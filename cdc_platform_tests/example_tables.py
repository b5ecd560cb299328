"""Source tables that the tests use; together they have every type and every form of key."""

from typing import Final

from cdc_platform.model.schema.table_schema import Column, ColumnType, TableSchema


def table(name: str, keys: dict[str, str], values: dict[str, str]) -> TableSchema:
    """Return a table from the texts of its columns' types."""
    columns = [
        Column(column, ColumnType.from_spanner_type(text), column in keys, ordinal)
        for ordinal, (column, text) in enumerate((keys | values).items(), start=1)
    ]
    return TableSchema(name, tuple(columns))


ACCOUNTS: Final = table(
    "accounts",
    {"account_id": "INT64"},
    {"owner": "STRING(MAX)", "balance": "INT64", "is_open": "BOOL", "rate": "FLOAT64", "opened_on": "DATE"},
)
ORDERS: Final = table(
    "orders",
    {"region": "STRING(8)", "order_id": "INT64"},
    {
        "amount": "NUMERIC",
        "placed_at": "TIMESTAMP",
        "receipt": "BYTES(MAX)",
        "details": "JSON",
        "tags": "ARRAY<STRING(MAX)>",
    },
)
MEMBERSHIPS: Final = table("memberships", {"group_id": "STRING(MAX)", "account_id": "INT64"}, {})
TABLES: Final = (ACCOUNTS, ORDERS, MEMBERSHIPS)
