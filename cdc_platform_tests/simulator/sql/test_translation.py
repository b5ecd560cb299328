"""The SQL of clients in either dialect, in the words of SQLite."""

from typing import Any, Final

import pytest

from cdc_platform.simulator.sql.tokens import all_tokens
from cdc_platform.simulator.sql.translation import to_sqlite
from cdc_platform.simulator.wire.problems import Refusal
from cdc_platform.simulator.wire.simulator_settings import Dialect

GOOGLESQL, POSTGRESQL = Dialect.GOOGLESQL, Dialect.POSTGRESQL
NAMES: Final = {"streamName": "s", "tables": ["a", "b"], "none": None, "p1": "s", "p2": [1, 2]}
TRUTHS: Final = {"TRUE": "'yes'", "FALSE": "'no'"}


@pytest.mark.parametrize(
    ("dialect", "sql", "text", "values"),
    [
        (GOOGLESQL, "WHERE x = @streamname", "WHERE x = :v0", ["s"]),
        (GOOGLESQL, "WHERE x = @STREAMNAME", "WHERE x = :v0", ["s"]),
        (POSTGRESQL, "WHERE x = $1::text;", "WHERE x = :v0", ["s"]),
        (GOOGLESQL, "SELECT cs.all, t.Select FROM cs", 'SELECT cs."all", t."Select" FROM cs', []),
        (POSTGRESQL, "SELECT cs.all AS all FROM cs", 'SELECT cs."all" AS "all" FROM cs', []),
        (POSTGRESQL, "SELECT cs.All AS Every", 'SELECT cs."all" AS "every"', []),
        (POSTGRESQL, "cast(x AS varchar(9))", "cast(x AS varchar(9))", []),
        (GOOGLESQL, "IF(x = 'YES', true, FALSE)", "iif(x = 'YES', 'yes', 'no')", []),
        (GOOGLESQL, "x = 'true' AND `if`", "x = 'true' AND \"if\"", []),
        (GOOGLESQL, "x in UNNEST(@tables)", "x IN (:v0, :v1)", ["a", "b"]),
        (GOOGLESQL, "x NOT IN UNNEST(@none)", "x NOT IN ()", []),
        (GOOGLESQL, "x IN UNNEST([1, @p1])", "x IN (1, :v0)", ["s"]),
        (GOOGLESQL, "x IN UNNEST(ARRAY<STRING>['a'])", "x IN ('a')", []),
        (POSTGRESQL, "x = ANY(Array['a','b'])", "x IN ('a','b')", []),
        (POSTGRESQL, "x = ANY(ARRAY['a']::character varying[])", "x IN ('a')", []),
        (POSTGRESQL, "x = any ($2::bigint[]) AND y", "x IN (:v0, :v1) AND y", [1, 2]),
        (POSTGRESQL, "x <> ALL(ARRAY[1, 2])", "x NOT IN (1, 2)", []),
        (POSTGRESQL, "y::timestamp with time zone > 'x'::text", "y > 'x'", []),
        (GOOGLESQL, 'x = "it\'s \\"@p1\\""', "x = 'it''s \"@p1\"'", []),
        (POSTGRESQL, "\"x\"\"y\" = 'it''s $1\\n'", "\"x\"\"y\" = 'it''s $1\\n'", []),
        (GOOGLESQL, "a # @p1\nb -- @p1\n/* @p1 */c", "a b c", []),
    ],
)
def test_queries_of_a_dialect_become_queries_of_sqlite(
    dialect: Dialect, sql: str, text: str, values: list[Any]
) -> None:
    """Parameters know no case, a keyword after a dot is a name, an array is a list; literals stay."""
    query = to_sqlite(sql, NAMES, dialect, TRUTHS)

    assert (text, values) == (query.text, list(query.values.values()))


@pytest.mark.parametrize(
    ("dialect", "sql", "message"),
    [
        (GOOGLESQL, "x = @other", "No parameter found for binding: other"),
        (POSTGRESQL, "x = $7", "No parameter found for binding: p7"),
        (GOOGLESQL, "x IN UNNEST(@p1)", "bind parameter p1: Expected ARRAY"),
        (GOOGLESQL, "x IN UNNEST(t.tags)", "array parameter or an array literal"),
        (POSTGRESQL, "x = ANY(SELECT 1)", "array parameter or an array literal"),
    ],
)
def test_what_cannot_be_translated_is_refused(dialect: Dialect, sql: str, message: str) -> None:
    """A parameter that is not bound, and an array that is none, are named."""
    with pytest.raises(Refusal, match=message):
        to_sqlite(sql, NAMES, dialect)


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "sql", ["SELECT 'a\\'b', \"c\", `d`, $1 /* open", "'open", "x\n-- end", "ä.ß ? 1e-5 @ #"]
)
def test_tokens_are_the_whole_text(dialect: Dialect, sql: str) -> None:
    """No character of a text is lost, whatever it is."""
    assert sql == "".join(token.text for token in all_tokens(sql, dialect))
