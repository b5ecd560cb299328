"""Cases of transactions, truncates, identities, tables of other kinds, definitions that change, snapshots."""

from typing import Final

from cdc_platform.sources.debezium.settings.engine_settings import Snapshot
from cdc_platform_tests.sources.debezium.captured_cases import ITEMS, Case, big, insert_item
from cdc_platform_tests.support.debezium.databases import Step

ACCOUNTS: Final[list[Step]] = [
    "CREATE TABLE accounts (id int PRIMARY KEY, balance int)",
    "CREATE TABLE entries (id int PRIMARY KEY, account int, amount int)",
    "INSERT INTO accounts SELECT i, 100 FROM generate_series(1, 4) i",
]

TRANSACTIONS: Final = Case(
    "transactions",
    "Transactions over two tables, interleaved, prepared, rolled back, by COPY's kind of statement; messages",
    ACCOUNTS,
    [
        "@a BEGIN",  # writes first and commits last
        "@a UPDATE accounts SET balance = balance - 10 WHERE id = 1",
        "@b BEGIN",
        "@b UPDATE accounts SET balance = balance + 5 WHERE id = 3",
        "@b INSERT INTO entries VALUES (1, 3, 5)",
        "@c INSERT INTO entries VALUES (2, 4, 0)",
        "@b UPDATE accounts SET balance = balance - 5 WHERE id = 4",
        "@b COMMIT",
        "@a SELECT pg_logical_emit_message(true, 'checkpoint', 'inside')",
        "@a UPDATE accounts SET balance = balance + 10 WHERE id = 2",
        "@a COMMIT",
        "SELECT pg_logical_emit_message(false, 'checkpoint', 'outside')",
        "BEGIN",
        "UPDATE accounts SET balance = 0",
        "ROLLBACK",
        "BEGIN",
        "INSERT INTO entries VALUES (3, 1, 1)",
        "SAVEPOINT s",
        "INSERT INTO entries VALUES (4, 1, 1)",
        "ROLLBACK TO s",
        "INSERT INTO entries VALUES (5, 1, 1)",
        "RELEASE s",
        "COMMIT",
        "BEGIN",
        "UPDATE accounts SET balance = balance + 1 WHERE id = 1",
        "PREPARE TRANSACTION 'two'",
        "UPDATE accounts SET balance = balance + 2 WHERE id = 2",
        "COMMIT PREPARED 'two'",
        "INSERT INTO entries SELECT i, 1, 0 FROM generate_series(100, 110) i",
    ],
)

TRUNCATES: Final = Case(
    "truncates",
    "TRUNCATE alone, of two tables, cascading, rolled back, and within a transaction between rows",
    [
        *ACCOUNTS,
        "CREATE TABLE notes (id int PRIMARY KEY, account int REFERENCES accounts, note text)",
        "INSERT INTO notes VALUES (1, 1, 'n')",
        "INSERT INTO entries VALUES (1, 1, 1)",
    ],
    [
        "TRUNCATE entries",
        "INSERT INTO entries VALUES (1, 2, 2)",
        "BEGIN",
        "TRUNCATE entries",
        "ROLLBACK",
        "BEGIN",
        "INSERT INTO entries VALUES (2, 2, 2)",
        "TRUNCATE entries",
        "INSERT INTO entries VALUES (2, 3, 3), (3, 3, 3)",
        "COMMIT",
        "TRUNCATE accounts CASCADE",
        "INSERT INTO accounts VALUES (1, 7), (9, 9)",
        "INSERT INTO notes VALUES (1, 9, 'again')",
        "TRUNCATE notes, entries",
        "INSERT INTO notes VALUES (2, 1, 'last')",
    ],
)


def _identity(name: str, constraint: str, alter: str) -> list[Step]:
    return [
        f"CREATE TABLE {name} (id int NOT NULL, code text NOT NULL, n int NOT NULL, big text {constraint})",
        f"ALTER TABLE {name} ALTER big SET STORAGE EXTERNAL",
        *([f"ALTER TABLE {name} {alter}"] if alter else []),
    ]


def _changes(name: str) -> list[Step]:
    return [
        f"INSERT INTO {name} SELECT i, 'c' || i, i, {big(1)} FROM generate_series(1, 4) i",
        f"UPDATE {name} SET n = 10 WHERE id = 1",
        f"UPDATE {name} SET code = 'd2' WHERE id = 2",
        f"UPDATE {name} SET id = 30 WHERE id = 3",
        f"DELETE FROM {name} WHERE id = 4",
    ]


IDENTITIES: Final = Case(
    "identities",
    "Each REPLICA IDENTITY: with a key and without, by another index, switched in the stream, equal rows",
    [
        *_identity("ri_default", ", PRIMARY KEY (id)", ""),
        *_identity("ri_full", ", PRIMARY KEY (id)", "REPLICA IDENTITY FULL"),
        *_identity("ri_full_no_key", "", "REPLICA IDENTITY FULL"),
        *_identity(
            "ri_index",
            ", PRIMARY KEY (id), CONSTRAINT u UNIQUE (code)",
            "REPLICA IDENTITY USING INDEX u",
        ),
        *_identity("ri_index_no_key", ", CONSTRAINT v UNIQUE (code)", "REPLICA IDENTITY USING INDEX v"),
        *_identity("ri_switch", ", PRIMARY KEY (id)", ""),
        "CREATE TABLE no_key (n int, t text)",
    ],
    [
        *_changes("ri_default"),
        *_changes("ri_full"),
        *_changes("ri_full_no_key"),
        "INSERT INTO ri_full_no_key SELECT 7, 'same', 7, 'same' FROM generate_series(1, 3)",
        "UPDATE ri_full_no_key SET n = 8 WHERE ctid = (SELECT min(ctid) FROM ri_full_no_key WHERE n = 7)",
        "DELETE FROM ri_full_no_key WHERE ctid = (SELECT min(ctid) FROM ri_full_no_key WHERE n = 7)",
        *_changes("ri_index"),
        *_changes("ri_index_no_key"),
        *_changes("ri_switch"),
        "ALTER TABLE ri_switch REPLICA IDENTITY FULL",
        "UPDATE ri_switch SET n = 11 WHERE id = 1",
        "UPDATE ri_switch SET id = 20 WHERE id = 2",
        "ALTER TABLE ri_switch REPLICA IDENTITY DEFAULT",
        "UPDATE ri_switch SET n = 12 WHERE id = 1",
        "INSERT INTO no_key VALUES (1, 'a'), (1, 'a'), (2, 'b')",
    ],
)

PARTITIONED: Final[list[Step]] = [
    "CREATE TABLE sales (id int, year int, big text, PRIMARY KEY (id, year)) PARTITION BY LIST (year)",
    "CREATE TABLE sales_24 PARTITION OF sales FOR VALUES IN (2024)",
    "CREATE TABLE sales_25 PARTITION OF sales FOR VALUES IN (2025)",
    "ALTER TABLE sales_24 ALTER big SET STORAGE EXTERNAL",
    "ALTER TABLE sales_25 ALTER big SET STORAGE EXTERNAL",
    f"INSERT INTO sales VALUES (1, 2024, {big(1)}), (2, 2025, 'b')",
]
PARTITIONED_STEPS: Final[list[Step]] = [
    f"INSERT INTO sales VALUES (3, 2024, {big(3)})",
    "UPDATE sales SET year = 2025 WHERE id = 3",
    "UPDATE sales SET id = 11 WHERE id = 1",
    "DELETE FROM sales WHERE id = 2",
    "INSERT INTO sales VALUES (4, 2024, 'd')",
    "TRUNCATE sales_24",
    "INSERT INTO sales VALUES (5, 2024, 'e')",
]

KINDS: Final = [
    Case("partition_leaf", "A partitioned table, published by its parts", PARTITIONED, PARTITIONED_STEPS),
    Case(
        "partition_root",
        "A partitioned table, published as one",
        PARTITIONED,
        PARTITIONED_STEPS,
        {"publish.via.partition.root": "true"},
    ),
    Case(
        "names",
        "Quoted names, mixed case, dots, and a key of two columns",
        [
            'CREATE SCHEMA "My Schema"',
            'CREATE TABLE "My Schema"."Mixed.Case" ("Id" int, "a.b" text, "Ü c" int)',
            'ALTER TABLE "My Schema"."Mixed.Case" ADD PRIMARY KEY ("Id", "a.b")',
        ],
        [
            'INSERT INTO "My Schema"."Mixed.Case" VALUES (1, \'x\', 1)',
            'UPDATE "My Schema"."Mixed.Case" SET "a.b" = \'y\'',
        ],
    ),
]

EVOLVE_SETUP: Final[list[Step]] = [*ITEMS, insert_item(1), insert_item(2)]
EVOLVE_STEPS: Final[list[Step]] = [
    "ALTER TABLE items ADD added int DEFAULT 7",
    "UPDATE items SET n = 1 WHERE id = 1",
    "ALTER TABLE items RENAME other TO renamed",
    "UPDATE items SET n = 2 WHERE id = 1",
    "ALTER TABLE items ALTER n TYPE bigint",
    "UPDATE items SET n = 3000000000 WHERE id = 1",
    "BEGIN",
    "ALTER TABLE items ADD late text",
    "INSERT INTO items (id, late) VALUES (3, 'late')",
    "ALTER TABLE items DROP big",
    "INSERT INTO items (id, late) VALUES (4, 'later')",
    "COMMIT",
    "UPDATE items SET id = 5 WHERE id = 2",
    "CREATE TABLE born (id int PRIMARY KEY, t text)",
    "INSERT INTO born VALUES (1, 'new table')",
]
EVOLVE: Final = [
    Case(
        "evolve",
        "ADD, RENAME, DROP, a wider type, a new table",
        EVOLVE_SETUP,
        EVOLVE_STEPS,
    ),
    Case(
        "evolve_schema",
        "ADD, RENAME, DROP, a wider type, a new table, with schema blocks",
        EVOLVE_SETUP,
        EVOLVE_STEPS,
        with_schemas=True,
    ),
]

UNWRAP: Final = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
}
FLAT_STEPS: Final[list[Step]] = [
    insert_item(3),
    "UPDATE items SET n = 1 WHERE id = 1",
    "UPDATE items SET id = 30 WHERE id = 3",
    "DELETE FROM items WHERE id = 2",
    "TRUNCATE items",
    "INSERT INTO items VALUES (1, 1, 'x', 'y')",
]
FLAT: Final = [
    Case("flat_default", "Flattened: no field has the order", EVOLVE_SETUP, FLAT_STEPS, UNWRAP),
    Case(
        "flat_rewrite",
        "Flattened: deletes rewritten, fields for the order added",
        EVOLVE_SETUP,
        FLAT_STEPS,
        UNWRAP
        | {
            "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
            "transforms.unwrap.add.fields": "op,source.txId,source.lsn,source.sequence,source.schema,"
            "source.table,source.ts_us,source.snapshot,transaction.total_order",
        },
    ),
]

SNAPSHOTS: Final = [
    Case(
        "no_snapshot",
        "Changes of rows that no snapshot has: unavailable until a later event brings the values",
        EVOLVE_SETUP,
        [
            "UPDATE items SET n = 1 WHERE id = 1",
            "UPDATE items SET id = 20 WHERE id = 2",
            f"UPDATE items SET big = {big(5)}, other = 'short' WHERE id = 1",
        ],
        snapshot=Snapshot.NEVER,
    ),
    Case(
        "incremental_snapshot",
        "An incremental snapshot, asked for by a row of the signal table, heals what is unavailable",
        [
            *EVOLVE_SETUP,
            "CREATE TABLE signals (id text PRIMARY KEY, type text, data text)",
        ],
        [
            "UPDATE items SET n = 1 WHERE id = 1",
            (
                "INSERT INTO signals VALUES ('s1', 'execute-snapshot', %s)",
                ('{"data-collections": ["public.items"], "type": "incremental"}',),
            ),
            "UPDATE items SET n = 2 WHERE id = 2",
        ],
        {
            "signal.data.collection": "public.signals",
            "incremental.snapshot.chunk.size": "1",
        },
        snapshot=Snapshot.NEVER,
    ),
    Case(
        "masked",
        "Columns cut and hashed: the marker is, too",
        EVOLVE_SETUP,
        ["UPDATE items SET n = 1 WHERE id = 1"],
        {
            "column.truncate.to.10.chars": "public.items.big",
            "column.mask.hash.SHA-256.with.salt.s": "public.items.other",
        },
    ),
]

TRAFFIC: Final = [TRANSACTIONS, TRUNCATES, IDENTITIES, *KINDS, *EVOLVE, *FLAT, *SNAPSHOTS]
