"""Translation of queries of both dialects to SQLite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_platform.simulator.sql.parameters import Parameters, find_parameter
from cdc_platform.simulator.sql.tokens import Token, TokenKind, all_tokens, at, closing, end_of_casts
from cdc_platform.simulator.wire.problems import not_answered, parameter_invalid
from cdc_platform.simulator.wire.simulator_settings import Dialect

_STRAY: Final = frozenset("'\"`[]")
_NO_LIST: Final = "IN UNNEST and = ANY take an array parameter or an array literal"


@dataclass(frozen=True)
class SqliteQuery:
    """A query in SQLite's dialect, and the values of its parameters by name."""

    text: str
    values: dict[str, Any]


def to_sqlite(
    sql: str, parameters: Parameters, dialect: Dialect, truths: Mapping[str, str] | None = None
) -> SqliteQuery:
    """Translate a query of a dialect to SQLite.

    Args:
        sql: the query.
        parameters: the bound values; the case of their names does not matter.
        dialect: the language of the query.
        truths: the expressions for TRUE and FALSE; by default SQLite's own.

    Raises:
        Refusal: a parameter is not bound, or is not an array although one is required; or the query has an
            unterminated quote, or several SELECTs: names that refer to names can grow without bound while
            SQLite prepares the query, when no limit applies.
    """
    translation = _Translation(all_tokens(sql, dialect), parameters, dialect, truths or {})
    text = translation.text(0, len(translation.tokens)).rstrip().removesuffix(";")
    return SqliteQuery(text, translation.values)


@dataclass
class _Translation:
    """The translation of one query; places count its tokens without white space."""

    all_tokens: Sequence[Token]
    parameters: Parameters
    dialect: Dialect
    truths: Mapping[str, str]
    tokens: list[Token] = field(init=False)
    spaces: set[int] = field(init=False)
    values: dict[str, Any] = field(default_factory=dict)
    selects: int = 0

    def __post_init__(self) -> None:
        self.tokens, self.spaces = [], set()
        for token in self.all_tokens:
            if token.kind is TokenKind.SPACE:
                self.spaces.add(len(self.tokens))
            else:
                self.tokens.append(token)

    def text(self, place: int, end: int) -> str:
        """Return the tokens up to `end`, translated to SQLite."""
        parts = []
        while place < end:
            parts.append(" " if place in self.spaces else "")
            part, place = self._part(place)
            parts.append(part)
        return "".join(parts)

    def _part(self, place: int) -> tuple[str, int]:
        """Return the translation of the tokens at a place, and the place after them."""
        token = self.tokens[place]
        if token.is_mark("::"):
            return "", end_of_casts(self.tokens, place)
        list_test = self._list_operator(place)
        if list_test is not None:
            operator, opening = list_test
            end = closing(self.tokens, opening)
            return f"{operator} ({self._items(opening + 1, end)})", end + 1
        return self._word(place), place + 1

    def _list_operator(self, place: int) -> tuple[str, int] | None:
        """Return SQLite's operator and the place of the list if a value is compared with an array here."""
        token, following = self.tokens[place], at(self.tokens, place + 1)
        if not at(self.tokens, place + 2).is_mark("("):
            return None
        if self.dialect is Dialect.GOOGLESQL:
            is_list = token.is_word("IN") and following.is_word("UNNEST")
            return ("IN", place + 2) if is_list else None
        if token.is_mark("=") and following.is_word("ANY", "SOME"):
            return "IN", place + 2
        if token.text in ("<>", "!=") and following.is_word("ALL"):
            return "NOT IN", place + 2
        return None

    def _items(self, first: int, end: int) -> str:
        """Return the elements of an array as a list of expressions."""
        token = at(self.tokens, first)
        if token.kind is TokenKind.PARAMETER and end_of_casts(self.tokens, first + 1) == end:
            return self._bound_items(token)
        opening = first
        if token.is_word("ARRAY"):
            opening = next((n for n in range(first, end) if self.tokens[n].is_mark("[")), end)
        if opening >= end or not self.tokens[opening].is_mark("["):
            raise not_answered(_NO_LIST)
        last = closing(self.tokens, opening)
        if end_of_casts(self.tokens, last + 1) != end:
            raise not_answered(_NO_LIST)
        return self.text(opening + 1, last)

    def _bound_items(self, token: Token) -> str:
        value = self.parameters[find_parameter(self.parameters, token.value)]
        if not isinstance(value, list | None):
            raise parameter_invalid(token.value, "ARRAY")
        return ", ".join(map(self._bind, value or ()))

    def _bind(self, value: Any) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f":{name}"

    def _word(self, place: int) -> str:
        token, previous = self.tokens[place], at(self.tokens, place - 1)
        if token.kind is TokenKind.TEXT:
            return _quote(token.value, "'")
        if token.kind is TokenKind.PARAMETER:
            return self._bind(self.parameters[find_parameter(self.parameters, token.value)])
        if token.kind is TokenKind.QUOTED or self._is_name_for_certain(place, previous):
            return _quote(token.value, '"')
        if token.kind is TokenKind.MARK and token.text[0] in _STRAY:
            raise not_answered(f"{token.text[0]} does not begin a literal or a name here")
        if token.kind is not TokenKind.NAME:
            return token.text
        self.selects += token.is_word("SELECT")
        if self.selects > 1:
            raise not_answered("a query has one SELECT, without WITH, UNION and subqueries")
        if self.dialect is Dialect.GOOGLESQL and token.is_word("IF") and self._is_called(place):
            return "iif"
        return self.truths.get(token.text.upper(), token.text)

    def _is_name_for_certain(self, place: int, previous: Token) -> bool:
        """Return whether a keyword is a name here: after a dot, and as an alias in PostgreSQL."""
        if self.tokens[place].kind is not TokenKind.NAME or self._is_called(place):
            return False
        return previous.is_mark(".") or (self.dialect is Dialect.POSTGRESQL and previous.is_word("AS"))

    def _is_called(self, place: int) -> bool:
        return at(self.tokens, place + 1).is_mark("(")


def _quote(text: str, quote: str) -> str:
    return f"{quote}{text.replace(quote, quote * 2)}{quote}"
