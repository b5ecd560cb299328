"""A seeded workload of concurrent sessions, with checkpoints at which the truth is known.

Run it as `python -m cdc_platform_tests.sources.debezium.workload DSN [--seed N] [--transactions N] ...`. It
writes a line of JSON for each checkpoint: its number and all rows of all tables, as the server's texts.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Final

import psycopg2

from cdc_platform_tests.support.debezium.databases import truth

PREFIX: Final = "checkpoint"
"""Prefix of the logical messages that name a checkpoint; the content is its number."""

SETUP: Final = (
    """
    CREATE TABLE items (
        id int PRIMARY KEY, n int, price numeric(10,2), big text, doc jsonb, raw bytea, tags text[],
        at timestamptz
    )
    """,
    *(f"ALTER TABLE items ALTER {name} SET STORAGE EXTERNAL" for name in ("big", "doc", "raw", "tags")),
    "CREATE TABLE lines (item int, line int, big text, PRIMARY KEY (item, line))",
    "ALTER TABLE lines ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)",
    "INSERT INTO accounts SELECT i, 1000 FROM generate_series(1, 8) i",
    "CREATE TABLE whole (id int PRIMARY KEY, n int, big text, amount numeric)",
    "ALTER TABLE whole ALTER big SET STORAGE EXTERNAL, REPLICA IDENTITY FULL",
)
TABLES: Final = ("items", "lines", "accounts", "whole")
ROLLED_BACK: Final = 0.08
NO_TEXT: Final = 0.1
SHORT_TEXT: Final = 0.25
BIG: Final = 2600
"""Letters of a text that is stored out of line."""


@dataclass(frozen=True)
class Options:
    """Steps of a workload.

    Args:
        seed: the same seed gives the same rows: sessions take turns in one thread, so that one that waits for
            another always gives up.
        transactions: how many there are.
        sessions: how many sessions take turns, statement by statement.
        checkpoints: how many checkpoints are taken, evenly; the last one at the end.
        keys: how many keys the rows share.
        unavailable: share of the updates that leave large values alone.
    """

    seed: int = 0
    transactions: int = 200
    sessions: int = 4
    checkpoints: int = 4
    keys: int = 40
    unavailable: float = 0.6


@dataclass(frozen=True)
class Checkpoint:
    """All rows at a moment: what was committed before the message, and nothing else.

    Args:
        number: content of the message.
        tables: columns and rows by table, see `databases.truth`.
    """

    number: int
    tables: dict[str, Any]


@dataclass
class Workload:
    """A workload on a database.

    Args:
        connect: opens a session.
        options: what it does.
    """

    connect: Callable[[], Any]
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        """Begin the stream of random numbers."""
        self._random = random.Random(self.options.seed)  # noqa: S311  repeatable on purpose
        self._extra = 0

    def set_up(self) -> None:
        """Make the tables and some rows, for a snapshot to find."""
        with closing(self.connect()) as session:
            session.autocommit = True
            cursor = session.cursor()
            for statement in SETUP:
                cursor.execute(statement)
            for _ in range(self.options.keys // 4):
                self._insert(cursor)

    def run(self) -> Iterator[Checkpoint]:
        """Run the transactions; yield each checkpoint when it was taken."""
        done, every = 0, max(1, self.options.transactions // self.options.checkpoints)
        with ExitStack() as stack:
            sessions = [stack.enter_context(closing(self.connect())) for _ in range(self.options.sessions)]
            for number in range(1, self.options.checkpoints + 1):
                is_last = number == self.options.checkpoints
                until = self.options.transactions if is_last else number * every
                self._run_transactions(sessions, until - done)
                done = until
                self._change_tables()
                yield self._check(number)

    def _run_transactions(self, sessions: Sequence[Any], count: int) -> None:
        """Let the sessions take turns; one that would wait for another gives up its transaction."""
        open_: dict[int, list[Callable[[Any], None]]] = {}
        while count > 0 or open_:
            index = self._random.randrange(len(sessions))
            if index not in open_:
                if count > 0:
                    open_[index] = self._transaction()
                    count -= 1
                continue
            session = sessions[index]
            try:
                cursor = session.cursor()
                cursor.execute("SET LOCAL lock_timeout = '20ms'")
                open_[index].pop(0)(cursor)
            except (psycopg2.errors.LockNotAvailable, psycopg2.errors.UniqueViolation):
                session.rollback()
                del open_[index]
                continue
            if not open_[index]:
                end = session.rollback if self._random.random() < ROLLED_BACK else session.commit
                end()
                del open_[index]

    def _transaction(self) -> list[Callable[[Any], None]]:
        kinds = [
            (self._insert, 20),
            (self._update, 40),
            (self._delete, 8),
            (self._move, 10),
            (self._chain, 4),
            (self._swap, 4),
            (self._shift, 3),
            (self._onto_freed, 4),
            (self._reinsert, 4),
            (self._transfer, 8),
            (self._copy, 2),
            (self._truncate, 1),
            (self._rolled_back, 6),
            (self._whole, 8),
        ]
        steps, weights = zip(*kinds, strict=True)
        return list(self._random.choices(steps, weights, k=self._random.randint(1, 5)))

    def _key(self) -> int:
        return self._random.randint(1, self.options.keys)

    def _text(self) -> str | None:
        """Return a text out of line, a short one, or none."""
        chance = self._random.random()
        if chance < NO_TEXT:
            return None
        if chance < SHORT_TEXT:
            return f"short {self._random.randint(0, 999)}"
        return "".join(self._random.choices("abcdefghij", k=BIG))

    def _insert(self, cursor: Any) -> None:
        text = self._text()
        cursor.execute(
            "INSERT INTO items (id, n, price, big, doc, raw, tags, at) VALUES (%s, %s, %s, %s, %s, %s, %s, "
            "'2026-01-01 00:00:00.123456+00'::timestamptz + %s * interval '1 second') ON CONFLICT DO NOTHING",
            (
                self._key(),
                self._random.randint(0, 9999),
                f"{self._random.randint(-99999, 99999)}.{self._random.randint(0, 99):02d}",
                text,
                json.dumps({"t": self._text()}),
                (self._text() or "").encode(),
                None if text is None else [text, None, "x"],
                self._random.randint(0, 10**6),
            ),
        )
        lines = [(self._key(), line, self._text()) for line in range(self._random.randint(0, 2))]
        for line in lines:
            cursor.execute("INSERT INTO lines VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", line)

    def _update(self, cursor: Any) -> None:
        key = self._key()
        if self._random.random() < self.options.unavailable:
            cursor.execute("UPDATE items SET n = %s WHERE id = %s", (self._random.randint(0, 9999), key))
        else:
            column = self._random.choice(("big", "big", "price"))
            value = self._text() if column == "big" else f"{self._random.randint(-9999, 9999)}.05"
            cursor.execute(f"UPDATE items SET {column} = %s WHERE id = %s", (value, key))
        cursor.execute("UPDATE lines SET line = line + 1000 WHERE item = %s AND line < 1000", (key,))

    def _delete(self, cursor: Any) -> None:
        cursor.execute("DELETE FROM items WHERE id = %s", (self._key(),))

    def _move(self, cursor: Any) -> None:
        cursor.execute("UPDATE items SET id = %s WHERE id = %s", (self._key(), self._key()))

    def _chain(self, cursor: Any) -> None:
        key, base = self._key(), 1000 + self._random.randint(0, 10**6)
        for old, new in ((key, base), (base, base + 1), (base + 1, key)):
            cursor.execute("UPDATE items SET id = %s, n = n + 1 WHERE id = %s", (new, old))

    def _swap(self, cursor: Any) -> None:
        item, other = sorted(self._random.sample(range(1, self.options.keys + 1), 2))
        for old, new in ((item, -1 - item), (other, item), (-1 - item, other)):
            cursor.execute("UPDATE items SET id = %s WHERE id = %s", (new, old))

    def _shift(self, cursor: Any) -> None:
        low = self._key()
        cursor.execute("UPDATE items SET id = -id WHERE id BETWEEN %s AND %s", (low, low + 3))
        cursor.execute("UPDATE items SET id = 1 - id WHERE id BETWEEN %s AND %s", (-low - 3, -low))

    def _onto_freed(self, cursor: Any) -> None:
        victim, mover = self._random.sample(range(1, self.options.keys + 1), 2)
        cursor.execute("DELETE FROM items WHERE id = %s", (victim,))
        cursor.execute("UPDATE items SET id = %s WHERE id = %s", (victim, mover))

    def _reinsert(self, cursor: Any) -> None:
        key = self._key()
        cursor.execute("DELETE FROM items WHERE id = %s", (key,))
        cursor.execute("INSERT INTO items (id, n, big) VALUES (%s, -1, %s)", (key, self._text()))

    def _transfer(self, cursor: Any) -> None:
        giver, taker = sorted(self._random.sample(range(1, 9), 2))
        amount = self._random.randint(1, 50)
        cursor.execute("UPDATE accounts SET balance = balance - %s WHERE id = %s", (amount, giver))
        cursor.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", (amount, taker))

    def _copy(self, cursor: Any) -> None:
        first = 10**7 + self._random.randint(0, 10**6) * 100
        rows = "".join(f"{first + number}\t0\tcopied\n" for number in range(self._random.randint(2, 40)))
        cursor.copy_expert("COPY lines (item, line, big) FROM STDIN", StringIO(rows))

    def _truncate(self, cursor: Any) -> None:
        tables = self._random.choice(("lines", "whole", "lines, whole"))
        cursor.execute(f"TRUNCATE {tables}")

    def _rolled_back(self, cursor: Any) -> None:
        cursor.execute("SAVEPOINT s")
        self._update(cursor)
        self._delete(cursor)
        cursor.execute(self._random.choice(("ROLLBACK TO s", "RELEASE s")))

    def _whole(self, cursor: Any) -> None:
        cursor.execute(
            "INSERT INTO whole VALUES (%s, 0, %s, %s) ON CONFLICT (id) DO UPDATE SET n = whole.n + 1",
            (self._key(), self._text(), self._random.choice((None, "1.5"))),
        )
        free = 1000 + self._random.randint(0, 10**6)
        cursor.execute(
            "UPDATE whole SET id = %s, amount = nullif(amount, 1.5) WHERE id = %s", (free, self._key())
        )

    def _change_tables(self) -> None:
        """Add, rename or drop a column, between transactions."""
        round_, kind = divmod(self._extra, 4)
        self._extra += 1
        name = f"extra_{round_}"
        statements = (
            [f"ALTER TABLE items ADD {name} text", f"UPDATE items SET {name} = 'e' || id WHERE id % 2 = 0"],
            [f"ALTER TABLE whole ADD {name} int DEFAULT 7", f"UPDATE whole SET {name} = id WHERE id % 2 = 0"],
            [f"ALTER TABLE items RENAME {name} TO {name}_renamed", "UPDATE items SET n = n + 1"],
            [f"ALTER TABLE items DROP {name}_renamed"],
        )[kind]
        with closing(self.connect()) as session, session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _check(self, number: int) -> Checkpoint:
        """Take a checkpoint: there are no writes between its message and the read of the tables."""
        with closing(self.connect()) as session, session, session.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {', '.join(TABLES)} IN SHARE MODE")
            cursor.execute("SELECT pg_logical_emit_message(true, %s, %s)", (PREFIX, str(number)))
            tables = truth(cursor)
        return Checkpoint(number, {name: tables[f"public.{name}"] for name in TABLES})


def main() -> None:
    """Run a workload and write its checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", help="address of the database, for libpq")
    for name in ("seed", "transactions", "sessions", "checkpoints", "keys"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Options, name))
    parser.add_argument("--unavailable", type=float, default=Options.unavailable)
    options = vars(parser.parse_args())
    dsn = options.pop("dsn")
    workload = Workload(lambda: psycopg2.connect(dsn), Options(**options))
    workload.set_up()
    for checkpoint in workload.run():
        sys.stdout.write(json.dumps({"number": checkpoint.number, "tables": checkpoint.tables}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
