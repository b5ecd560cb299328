"""Differences of simulator and emulator, who is right, and why; each row of the table is tested on both.

The simulator of this suite sends every form of records that Spanner has. Without its options it sends those
of the emulator, which all clients read; a row says where a client reads no other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pytest

from cdc_platform.model.base.timestamps import from_datetime, to_rfc3339
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.server_fixtures import SERVERS, Answers
from cdc_platform_tests.sources.spanner.servers import SIMULATOR, children_of, data_of, micros, read_all
from cdc_platform_tests.sources.spanner.valued_servers import open_valued_on_emulator, open_valued_simulator

pytestmark = pytest.mark.integration

MANY_DIGITS: Final = 10


@dataclass(frozen=True)
class Difference:
    """Observation of both servers, with the one that behaves like Spanner and the evidence."""

    simulator: Any
    emulator: Any
    right: str
    why: str
    observe: Callable[[Answers], Any]
    dialects: tuple[Dialect, ...] = tuple(Dialect)


def partitions_of_transactions(answers: Answers) -> bool:
    """Return whether a transaction has records in several partitions."""
    return any(record["number_of_partitions_in_transaction"] > 1 for record in answers.data)


def is_tagged(answers: Answers) -> bool:
    """Return whether a transaction has a tag."""
    return any(record["transaction_tag"] for record in answers.data)


def shares_timestamps(answers: Answers) -> bool:
    """Return whether transactions share a commit timestamp."""
    transactions = {(micros(record), record["server_transaction_id"]) for record in answers.data}
    return len(transactions) > len({at for at, _ in transactions})


def sequence_forms(answers: Answers) -> set[bool]:
    """Return whether record sequences are pairs of numbers."""
    return {"-" in record["record_sequence"] for record in answers.data}


def parents_of_roots(answers: Answers) -> set[tuple[str | None, ...]]:
    """Return the parents of the partitions that the query without a token returns."""
    return {tuple(parents) for _, parents in children_of(answers.partitions[""]).values()}


def offsets(answers: Answers) -> set[str]:
    """Return how timestamps of records end."""
    return {re.sub(r".*\d(Z|[+-]\d\d:\d\d)$", r"\1", record["commit_timestamp"]) for record in answers.data}


def replaces(answers: Answers) -> bool:
    """Return whether a transaction has several records for one key."""
    keys = [
        (record["server_transaction_id"], record["table_name"], str(dict(mod["keys"])))
        for record in answers.data
        for mod in record["mods"]
    ]
    return len(keys) > len(set(keys))


def sends_after_token(answers: Answers) -> str:
    """Return what a query sends that resumes after its last message."""
    token = next(token for token, records in answers.partitions.items() if data_of(records))
    start = children_of([record for records in answers.partitions.values() for record in records])[token][0]
    whole = messages(answers, token, start)
    resumed = messages(answers, token, start, bytes(whole[-1].resume_token))
    return "everything again" if values_in(resumed) == values_in(whole) else str(values_in(resumed))


def values_of(answers: Answers, column: str) -> list[Any]:
    """Return the values of a column of the table of awkward values, where it has one."""
    new = (mod["new_values"] for record in answers.data for mod in record["mods"])
    return [row[column] for row in new if row.get(column) is not None]


def floats_as_texts(answers: Answers) -> set[str]:
    """Return the texts that stand for what JSON has no number for."""
    return {value for value in values_of(answers, "c_float64") if isinstance(value, str)}


def has_digits_of_seconds(answers: Answers) -> bool:
    """Return whether a timestamp column has more than seconds."""
    return any("." in value for value in values_of(answers, "c_timestamp"))


def has_four_digits_of_years(answers: Answers) -> bool:
    """Return whether years before 1000 have leading zeros."""
    return all(re.match(r"\d{4}-", value) for value in values_of(answers, "c_timestamp"))


def nulls_in_arrays(answers: Answers) -> set[Any]:
    """Return what stands for NULL among the elements of an array of INT64."""
    elements = {element for value in values_of(answers, "a_int64") for element in value}
    return {element for element in elements if element is None or not element.lstrip("-").isdigit()}


def counts_transactions(answers: Answers) -> bool:
    """Return whether ids of transactions are small numbers that count them."""
    return all(len(record["server_transaction_id"]) < MANY_DIGITS for record in answers.data)


def has_system_transactions(answers: Answers) -> bool:
    """Return whether a transaction is Spanner's own, such as of a TTL."""
    return any(record["is_system_transaction"] for record in answers.data)


def messages(answers: Answers, token: str, start_micros: int, resume_token: bytes = b"") -> list[Any]:
    """Return the messages of a query of one partition."""
    from google.cloud.spanner_v1.types import ExecuteSqlRequest, TransactionSelector

    api = answers.server.database.spanner_api
    values = (to_rfc3339(start_micros), to_rfc3339(answers.end_micros), token, "100")
    types = ("TIMESTAMP", "TIMESTAMP", "STRING", "INT64")
    names = [f"p{number}" for number in range(1, 5)]
    request = ExecuteSqlRequest(
        session=api.create_session(database=answers.server.database.name).name,
        sql=answers.server.stream_sql(),
        params=dict(zip(names, values, strict=True)),
        param_types={name: {"code": code} for name, code in zip(names, types, strict=True)},
        transaction=TransactionSelector({"single_use": {"read_only": {"strong": True}}}),
        resume_token=resume_token,
    )
    return list(api.execute_streaming_sql(request=request))


def values_in(values: list[Any]) -> int:
    """Return how many values messages hold."""
    return sum(len(message.values) for message in values)


DIFFERENCES: Final = {
    "transactions spread over partitions": Difference(
        True,
        False,
        "simulator",
        "Spanner's documentation: number_of_partitions_in_transaction. The emulator writes all to one.",
        partitions_of_transactions,
    ),
    "transaction tags": Difference(
        True, False, "simulator", "Spanner's documentation; the emulator's issue 280 is open.", is_tagged
    ),
    "several transactions at one commit timestamp": Difference(
        True,
        False,
        "simulator",
        "Spanner's documentation: they may, when they touch different rows. The emulator runs one at a time.",
        shares_timestamps,
    ),
    "forms of record_sequence": Difference(
        {False, True},
        {False},
        "simulator",
        "Spanner's newer form is a pair of numbers, which the emulator's own tests know. Beam 2.72 "
        "takes either. Debezium 3.6.3 parses decimal numbers and fails on a pair; its newer source knows "
        "both. So pairs are an option: record_sequences.",
        sequence_forms,
    ),
    "parents of the first partitions": Difference(
        {(None,)},
        {()},
        "both",
        "Spanner's documentation shows [NULL], the emulator sends []. Beam 2.72 and Debezium 3.6.3 fail on "
        "NULL. So NULL is an option: root_parents.",
        parents_of_roots,
    ),
    "several records for one key in a transaction": Difference(
        True,
        False,
        "simulator",
        "A REPLACE is DELETE and INSERT in Spanner, as the emulator's disabled tests say.",
        replaces,
    ),
    "a query that resumes after its last message": Difference(
        "0",
        "everything again",
        "simulator",
        "A resume token stands for a place in the result. The emulator's are all alike, and ignored.",
        sends_after_token,
    ),
    "timestamps of PostgreSQL's records": Difference(
        {"+00:00", "Z"},
        {"+00:00"},
        "both",
        "Spanner's documentation shows `Z`, the emulator writes an offset: readers take both.",
        offsets,
        (Dialect.POSTGRESQL,),
    ),
}


OF_VALUES: Final = {
    "NaN and the infinities": Difference(
        {"NaN", "Infinity", "-Infinity"},
        set(),
        "simulator",
        "Spanner's API writes them as texts, as in results of queries. The emulator's records have null.",
        floats_as_texts,
    ),
    "digits of a second in timestamp columns": Difference(
        True,
        False,
        "simulator",
        "Spanner's TIMESTAMP has nanoseconds. The emulator's records have whole seconds.",
        has_digits_of_seconds,
    ),
    "years before 1000 in timestamp columns": Difference(
        True,
        False,
        "simulator",
        "RFC 3339 has four digits. The emulator leaves out leading zeros.",
        has_four_digits_of_years,
    ),
    "NULL among elements of an array": Difference(
        {None},
        {"NULL"},
        "simulator",
        "Spanner's documentation: arrays may hold NULL. The emulator writes a text, which is no INT64.",
        nulls_in_arrays,
    ),
    "ids of transactions": Difference(
        False,
        True,
        "simulator",
        "Spanner's documentation: they are globally unique, and any text. The emulator counts them.",
        counts_transactions,
    ),
    "system transactions": Difference(
        True,
        False,
        "simulator",
        "Spanner's documentation of TTL: deletes are system transactions. The emulator expires nothing.",
        has_system_transactions,
    ),
}
"""Observations that need the table of awkward values."""


@pytest.fixture(scope="module")
def valued(request: pytest.FixtureRequest) -> Callable[[str, Dialect], Answers]:
    """Function that returns all records of a server with awkward values."""

    @cache
    def read(name: str, dialect: Dialect) -> Answers:
        opened = (
            open_valued_simulator(dialect)
            if name == SIMULATOR
            else open_valued_on_emulator(request.getfixturevalue("emulator"), dialect)
        )
        with opened as server:
            now_micros = from_datetime(server.now())
            return Answers(server, read_all(server, now_micros), now_micros)

    return read


@pytest.mark.parametrize("behaviour", OF_VALUES)
@pytest.mark.parametrize(("name", "dialect"), SERVERS)
def test_differences_of_values(
    valued: Callable[[str, Dialect], Answers], name: str, dialect: Dialect, behaviour: str
) -> None:
    """Both servers still write values as the table says."""
    difference = OF_VALUES[behaviour]
    expected = difference.simulator if name == SIMULATOR else difference.emulator

    assert expected == difference.observe(valued(name, dialect)), difference.why


@pytest.mark.parametrize(
    ("server", "behaviour"),
    [
        (pair, name)
        for pair in SERVERS
        for name, difference in DIFFERENCES.items()
        if pair[1] in difference.dialects
    ],
    indirect=["server"],
)
def test_differences(everything: Answers, behaviour: str) -> None:
    """Both servers still behave as the table says."""
    difference = DIFFERENCES[behaviour]
    expected = difference.simulator if everything.server.name == SIMULATOR else difference.emulator

    assert expected == difference.observe(everything), difference.why
    assert difference.right in ("simulator", "emulator", "both")
