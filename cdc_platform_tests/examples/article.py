"""The events of examples/debezium: what a real engine sends of the article's table.

Run it as `python -m cdc_platform_tests.examples.article` with PostgreSQL and the extra `debezium` installed.
Positions and moments differ from run to run, so the files of the example are kept.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from cdc_platform_tests.servers.postgresql import LOGICAL, cluster, require_postgresql
from cdc_platform_tests.sources.debezium.captured_cases import Case
from cdc_platform_tests.sources.debezium.captures import capture_case

TABLE: Final = "cdc.inventory.customers"
TRANSACTIONS: Final = "cdc.transaction"
FOLDER: Final = Path(__file__).parents[2] / "examples" / "debezium" / "events"


def biography(name: str) -> str:
    """Return an expression for a text of 2 kB, which PostgreSQL stores out of line."""
    expression = f"'Chapter ' || i || ' of the life of {name}, as she or he has told it. '"
    return f"(SELECT string_agg({expression}, '' ORDER BY i) FROM generate_series(1, 40) i)"


CUSTOMERS: Final = """
    CREATE TABLE inventory.customers (
        id SERIAL NOT NULL PRIMARY KEY,
        first_name VARCHAR(255) NOT NULL,
        last_name VARCHAR(255) NOT NULL,
        email VARCHAR(255) NOT NULL UNIQUE,
        biography TEXT
    )
"""
INTO: Final = "INSERT INTO inventory.customers VALUES"

ARTICLE: Final = Case(
    "sourcedb",
    "The article's table and update; a key change; values that are set and left alone in one transaction",
    [
        "CREATE SCHEMA inventory",
        CUSTOMERS,
        "ALTER TABLE inventory.customers ALTER biography SET STORAGE EXTERNAL",
        f"{INTO} (1001, 'Sally', 'Thomas', 'sally.thomas@acme.com', NULL)",
        f"{INTO} (1002, 'George', 'Bailey', 'gbailey@foobar.com', 'He had a wonderful life.')",
        f"{INTO} (1003, 'Edward', 'Walker', 'ed@walker.com', {biography('Edward')})",
        f"{INTO} (1004, 'Anne', 'Kretchmar', 'annek@noanswer.org', {biography('Anne')})",
    ],
    [
        "UPDATE inventory.customers SET first_name = 'Dana' WHERE id = 1004",  # the article's
        "UPDATE inventory.customers SET id = 2003 WHERE id = 1003",
        "UPDATE inventory.customers SET email = 'edward@walker.com' WHERE id = 2003",
        "BEGIN",
        f"UPDATE inventory.customers SET biography = {biography('Dana')} WHERE id = 1004",
        "UPDATE inventory.customers SET email = 'dana@noanswer.org' WHERE id = 1004",
        "COMMIT",
        "UPDATE inventory.customers SET biography = NULL WHERE id = 1002",  # a NULL that is meant
    ],
)


def numbered(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages of the table and of its transactions, without what says of the engine itself."""
    of_table = [message for message in messages if message["topic"] == TABLE]
    transactions = {str(message["value"]["source"]["txId"]) for message in of_table if message["value"]}
    for message in messages:
        is_transaction = message["topic"] == TRANSACTIONS
        if message in of_table or (is_transaction and message["key"]["id"].split(":")[0] in transactions):
            yield message


def main() -> None:
    """Capture the case, and write the snapshot's rows and the changes as a file each."""
    with TemporaryDirectory() as own:
        with cluster(require_postgresql(), Path(own) / "cluster", None, LOGICAL) as server:
            capture_case(server, ARTICLE, Path(own))
        lines = (Path(own) / "sourcedb.jsonl").read_text(encoding="utf-8").splitlines()
    messages = list(numbered([json.loads(line) for line in lines]))
    rows = [message for message in messages if (message["value"] or {}).get("op") == "r"]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, messages_of_file in (("0001-snapshot", rows), ("0002-changes", messages[len(rows) :])):
        text = "".join(f"{json.dumps(message)}\n" for message in messages_of_file)
        (FOLDER / f"{name}.jsonl").write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(messages)} messages in {FOLDER}\n")


if __name__ == "__main__":
    main()
