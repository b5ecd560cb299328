"""The pages of errors follow the tree of errors."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cdc_platform import errors
from cdc_platform.errors import CdcError
from cdc_platform_tests.docs.code_blocks import ROOT

INDEX: Final = ROOT / "docs" / "errors.md"
PAGES: Final = INDEX.with_suffix("")
TREE: Final = re.compile(r"(<!-- errors -->\n).*?(<!-- end of errors -->)", re.DOTALL)
HEAD: Final = re.compile(r"\A.*?^(?=## What to do$)", re.DOTALL | re.MULTILINE)
"""The part of a page that the code states."""
KINDS: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, CdcError) and kind is not CdcError
}
RETRY: Final = {
    True: "It may. `sync --continuous` and Dagster's sensor retry by themselves.",
    False: "No. The same call fails again until you have changed something.",
}


def meaning_of(kind: type[CdcError]) -> str:
    """Return the first sentence of an error's docstring."""
    assert kind.__doc__ is not None
    return re.sub(r"; ``.*", ".", kind.__doc__.splitlines()[0])


def below(kind: type[CdcError]) -> list[str]:
    """Return the names of the errors directly below one, in the order of the code."""
    return [name for name, other in KINDS.items() if other.__base__ is kind]


def tree_lines(kind: type[CdcError], indent: str = "") -> Iterator[str]:
    """Yield a line of the index for each error below one."""
    for name in below(kind):
        retry = " A retry may help." if KINDS[name].retryable else ""
        yield f"{indent}- [{name}](errors/{name}.md): {meaning_of(KINDS[name])}{retry}"
        yield from tree_lines(KINDS[name], f"{indent}    ")


def relatives_of(kind: type[CdcError]) -> str:
    """Return the sentences that link the errors above and below one."""
    base = kind.__base__
    above = (
        "" if base is CdcError or base is None else f" It is a kind of [{base.__name__}]({base.__name__}.md)."
    )
    kinds = ", ".join(f"[{name}]({name}.md)" for name in below(kind))
    return f"{above}{f' Its kinds have pages of their own: {kinds}.' if kinds else ''}"


def head_of(name: str) -> str:
    """Return what the page of an error says above what to do."""
    kind = KINDS[name]
    return f"""# {name}

On this page you can look up what `{name}` means, whether a retry helps, and what to do.
[All errors](../errors.md) are on one page.

## What it means

{meaning_of(kind)}{relatives_of(kind)}

## Does a retry help

{RETRY[kind.retryable]}

"""


def expected_texts() -> Iterator[tuple[Path, str, str]]:
    """Yield the index and each page with its text as it is, and as the code has it."""
    tree = "\n".join(tree_lines(CdcError))
    text = INDEX.read_text(encoding="utf-8")
    yield INDEX, text, TREE.sub(lambda part: f"{part[1]}\n{tree}\n\n{part[2]}", text)
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        yield page, text, head_of(page.stem) + HEAD.sub("", text)


def test_every_error_has_its_page() -> None:
    """There is one page for each error of the code, which ends with what to do."""
    assert sorted(KINDS) == sorted(page.stem for page in PAGES.iterdir())
    remedies = {page.stem: HEAD.sub("", page.read_text(encoding="utf-8")) for page in PAGES.iterdir()}
    assert [name for name, text in remedies.items() if not re.match(r"## What to do\n\n[^#\n]", text)] == []


def test_the_pages_of_errors_are_those_of_the_code() -> None:
    """The index draws the tree, and each page has its meaning and retry; `UPDATE_GOLDEN=1` writes them."""
    for page, text, expected in expected_texts():
        if os.environ.get("UPDATE_GOLDEN"):
            page.write_text(expected, encoding="utf-8")
        else:
            assert expected == text, "made by UPDATE_GOLDEN=1 pytest -n0 cdc_platform_tests/docs"
