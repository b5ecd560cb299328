"""Long texts of clients: none takes more than a moment, for any content."""

from functools import cache
from time import process_time
from typing import Final

import pytest

from cdc_platform.simulator.sql.database import MAX_CHARACTERS
from cdc_platform.simulator.sql.reads import TableReads
from cdc_platform.simulator.sql.tokens import all_tokens
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.simulator_settings import Dialect
from cdc_platform_tests.simulator.histories import Simulated, simulated

WITHIN_S: Final = 1.0
"""Each took between three and six seconds when its time was squared."""
PARTS: Final = ("/* ", "' ", '" ', "` ", "\\'", "-", " ", "a ", "FROM ", "(", "1.", "e+", "@", "$1")


@pytest.mark.parametrize("dialect", [*Dialect])
@pytest.mark.parametrize("part", PARTS)
def test_tokens_take_a_moment(part: str, dialect: Dialect) -> None:
    """The tokens of a text are the text, and are found in one pass."""
    text = part * (MAX_CHARACTERS // len(part))
    started_s = process_time()
    tokens = all_tokens(text, dialect)
    assert process_time() - started_s < WITHIN_S
    assert text == "".join(token.text for token in tokens)


@cache
def database(dialect: Dialect) -> Simulated:
    """Return a database of a dialect; queries leave it as it is."""
    return simulated(2.0, dialect=dialect)


@pytest.mark.parametrize("dialect", [*Dialect])
@pytest.mark.parametrize("begin", ["SELECT", "SELECT a", "SELECT a FROM accounts", "SELECT a FROM accounts;"])
@pytest.mark.parametrize("part", [" ", "\n", "a ", " FROM", "/* "])
def test_a_query_is_refused_within_a_moment(begin: str, part: str, dialect: Dialect) -> None:
    """A query that is none is refused, without a second look at each of its spaces."""
    running = database(dialect)
    reads = TableReads(running.history)
    text = f"{begin}{part * ((MAX_CHARACTERS - 100) // len(part))}x y z"
    started_s = process_time()
    with pytest.raises(Refusal):
        reads.answer(text, {}, running.now_micros)
    assert process_time() - started_s < WITHIN_S
