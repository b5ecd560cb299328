"""Words and names that the project has replaced do not come back: one word for one thing."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from cdc_platform_tests.repository_files import ROOT, text_files

OWN: Final = "cdc_platform_tests/test_words.py"
"""This table itself."""

REPLACED: Final[dict[str, str]] = {
    r"ticks?": "cycle",
    r"promis(?:e|es|ed|ing)": "guarantee, or pin of a cut",
    r"folds?|folded|folding": "net changes, or apply",
    r"born": "inserted, or new",
    r"waves?": "chunk batch",
    r"pieces?": "chunk, or part",
    r"gates?": "transaction buffer",
    r"ledgers?": "read progress",
    r"proofs?": "reconciliation, or check",
    r"sightings?": "observed columns",
    r"stor(?:y|ies)": "key chain, or scenario",
    r"traits?": "source capabilities",
    r"order[ _]keys?": "ordering key",
    r"verdicts?": "check result",
    r"renewals?|remade": "recreated",
    r"held": "quarantined, cached, or kept",
    r"tombstones?": "deletion marker; Kafka's keeps the word",
    r"told|tells?|telling": "report, state, show, or distinguish",
    r"beside": "next to, compared with, or in addition to",
    r"anew|whoever|of old(?! \w)|by then|at hand": "the plain word",
    r"(?-i:MOST_\w+)": "MAX_",
    r"(?-i:LEAST_\w+)": "MIN_",
    r"settl(?:e|es|ed|ing)": "finalise, close, resolve, or complete",
    r"(?:decode|read|followed)_here": "locally, or in process",
    r"said(?: ?:?=|\(\)|: str)": "output, or message",
    r"(?-i:(?<![_.])(?:known|asked|lacking|untold|wanted|meant|needed|lost|located|addressed|evolved|truncated"
    r"|passing|growing|collected|finalised|joined|matched|reported|unfinished|replaced|differing|stated"
    r"|encoded|judged|fitting)(?: :?=|: \w+(?:,|\)| =|$)))": "the noun of what it is",
}
"""What may not be written, as parts of words that `_`, spaces and signs separate, and what is written."""

EXCEPTIONS: Final = (
    # a path, what the line has, why it stays
    (r"dashboard/", r"tick", "a mark on a chart's axis"),
    (r"test_wide_tables\.py", r"tick`", "an odd name of a column"),
    (r"printing/", r'overflow="fold"', "an option of rich"),
    (r"examples/", r"\bborn\b", "a column of the example: the date of birth"),
    (r"captured_traffic\.py", r"TABLE born|INTO born", "a table's name in captured events"),
    (r"article\.py|debezium-toast\.md", r"has told it", "a large value of the example"),
    (r"sources/", r"\.tell\(\)", "a method of Python's files"),
    (r"bank\.py|simulator\.md", r"settle", "what a bank does"),
    (r"sources/datastream/", r'"settled"', "a key of a plan"),
    (r"debezium|kafka|topic|simulator-readers\.md|glossary\.md", r"tombstone", "Kafka's word"),
)
PATTERN: Final = re.compile(rf"(?<![a-z])(?:{'|'.join(REPLACED)})(?![a-z])", re.IGNORECASE)


def is_excepted(path: str, line: str) -> bool:
    """Return whether a line has the word for a reason."""
    return any(
        re.search(where, path) and re.search(what, line, re.IGNORECASE) for where, what, _ in EXCEPTIONS
    )


def replacement_of(word: str) -> str:
    """Return what is written instead of a word."""
    return next(new for old, new in REPLACED.items() if re.fullmatch(old, word, re.IGNORECASE))


def old_words(path: str, text: str) -> Iterator[str]:
    """Yield a readable line for each replaced word in a text."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in PATTERN.findall(line):
            if not is_excepted(path, line):
                yield f"{path}:{number} has `{word}`; write {replacement_of(word)}"


def test_replaced_words_do_not_come_back() -> None:
    """Code, tests, pages, settings and messages use one word for one thing."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in text_files()}
    lines = [line for name, text in texts.items() if name != OWN for line in old_words(name, text)]
    assert not lines, "\n".join(lines)


NAMES: Final = (
    "held_rows",
    "HELD",
    "a tombstone of",
    "is told",
    "order key",
    "the tick.",
    "_MOST_ROWS = 1",
    "said = 1",
    "asked = 1",
    "wanted: int,",
    "needed = 1",
    "joined = 1",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_replaced_word_is_found(name: str) -> None:
    """The names of code count, too."""
    assert len([*old_words("cdc_platform/cycle.py", name)]) == 1
