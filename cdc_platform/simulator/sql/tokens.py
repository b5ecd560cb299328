"""Tokens of SQL texts, according to the lexical rules of each dialect."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cdc_platform.simulator.wire.simulator_settings import Dialect


class TokenKind(Enum):
    """Kind of a token."""

    SPACE = "space"
    """White space or a comment."""
    TEXT = "text"
    """A string literal."""
    QUOTED = "quoted"
    """A quoted identifier, which is never a keyword."""
    PARAMETER = "parameter"
    """A query parameter: `@name`, or `$1`."""
    NAME = "name"
    """A keyword or a plain identifier."""
    NUMBER = "number"
    """A number without a sign."""
    MARK = "mark"
    """An operator, a parenthesis, or any other character; a quote or a comment without end, with the rest."""


_SPACE: Final = r"(?P<SPACE>(?:\s|--[^\n]*|/\*.*?\*/{more})+)"
_SHARED: Final = (
    r"|(?P<NAME>[^\W\d]\w*)|(?P<NUMBER>(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)"
    r"|(?P<MARK>=>|::|<>|!=|<=|>=|\|\||['\"].*|/\*.*|.)"
)
_TOKENS: Final = {
    Dialect.GOOGLESQL: re.compile(
        _SPACE.replace("{more}", r"|\#[^\n]*")
        + r"""|(?P<TEXT>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<QUOTED>`[^`]*`)|(?P<PARAMETER>@\w+)"""
        + _SHARED,
        re.IGNORECASE | re.DOTALL,
    ),
    Dialect.POSTGRESQL: re.compile(
        _SPACE.replace("{more}", "")
        + r"""|(?P<TEXT>'(?:[^']|'')*')|(?P<QUOTED>"(?:[^"]|"")*")|(?P<PARAMETER>\$\d+)"""
        + _SHARED,
        re.IGNORECASE | re.DOTALL,
    ),
}
_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<hex>[0-9a-f]{2})|u(?P<unicode>[0-9a-f]{4})|(?P<other>.))", re.IGNORECASE | re.DOTALL
)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_PAIRS: Final = {"(": ")", "[": "]"}


@dataclass(frozen=True)
class Token:
    """A token of a query.

    Args:
        kind: its kind.
        text: its characters in the query.
        value: the name of an identifier or a parameter, or the content of a string literal.
        position: its first character in the query.
    """

    kind: TokenKind
    text: str
    value: str
    position: int = 0

    @property
    def is_identifier(self) -> bool:
        """Whether it can be a name."""
        return self.kind in (TokenKind.NAME, TokenKind.QUOTED)

    def is_word(self, *words: str) -> bool:
        """Return whether it is one of these keywords, in upper case."""
        return self.kind is TokenKind.NAME and self.text.upper() in words

    def is_mark(self, mark: str) -> bool:
        """Return whether it is this operator or character."""
        return self.kind is TokenKind.MARK and self.text == mark


NOTHING: Final = Token(TokenKind.MARK, "", "")
"""Placeholder before the first and after the last token."""


def all_tokens(sql: str, dialect: Dialect) -> list[Token]:
    """Return all tokens of a text; their concatenation is the text."""
    tokens = []
    for match in _TOKENS[dialect].finditer(sql):
        kind = TokenKind[match.lastgroup or "MARK"]
        tokens.append(Token(kind, match[0], _value(kind, match[0], dialect), match.start()))
    return tokens


def tokens_of(sql: str, dialect: Dialect) -> list[Token]:
    """Return the tokens of a text without white space, comments and a semicolon at its end."""
    tokens = [token for token in all_tokens(sql, dialect) if token.kind is not TokenKind.SPACE]
    return tokens[:-1] if tokens and tokens[-1].is_mark(";") else tokens


def at(tokens: Sequence[Token], index: int) -> Token:
    """Return the token at a place, or `NOTHING` outside the list."""
    return tokens[index] if 0 <= index < len(tokens) else NOTHING


def closing(tokens: Sequence[Token], index: int) -> int:
    """Return the place of the bracket that closes the one at `index`; the number of tokens if none does."""
    bracket, depth = tokens[index].text, 0
    for place in range(index, len(tokens)):
        depth += tokens[place].is_mark(bracket) - tokens[place].is_mark(_PAIRS[bracket])
        if depth == 0:
            return place
    return len(tokens)


def split_list(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the items between commas outside of brackets, without empty ones."""
    items, depth = list[list[Token]]([[]]), 0
    for token in tokens:
        depth += token.text in _PAIRS and token.kind is TokenKind.MARK
        depth -= token.text in _PAIRS.values() and token.kind is TokenKind.MARK
        if token.is_mark(",") and depth == 0:
            items.append([])
        else:
            items[-1].append(token)
    return [item for item in items if item]


def end_of_casts(tokens: Sequence[Token], index: int) -> int:
    """Return the place after the casts of PostgreSQL that begin at `index`, such as `::varchar(9)[]`."""
    while at(tokens, index).is_mark("::"):
        index += 2
        while at(tokens, index).is_word("VARYING", "PRECISION", "WITH", "WITHOUT", "TIME", "ZONE"):
            index += 1
        while at(tokens, index).text in _PAIRS and at(tokens, index).kind is TokenKind.MARK:
            index = closing(tokens, index) + 1
    return index


def _value(kind: TokenKind, text: str, dialect: Dialect) -> str:
    if kind is TokenKind.PARAMETER:
        return f"p{text[1:]}" if text[0] == "$" else text[1:]
    if kind is TokenKind.NAME and dialect is Dialect.POSTGRESQL:
        return text.lower()
    if kind not in (TokenKind.TEXT, TokenKind.QUOTED):
        return text
    if dialect is Dialect.POSTGRESQL:
        return text[1:-1].replace(text[0] * 2, text[0])
    return _ESCAPE.sub(_unescape, text[1:-1]) if kind is TokenKind.TEXT else text[1:-1]


def _unescape(match: re.Match[str]) -> str:
    digits = match["hex"] or match["unicode"]
    return chr(int(digits, 16)) if digits else _ESCAPED.get(match["other"], match["other"])
