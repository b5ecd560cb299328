"""A new user's commands are those of the pages."""

import pytest

from benchmarks.first_query import EXAMPLES, INSTALL, Example
from cdc_platform_tests.docs.code_blocks import ROOT


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_commands_are_on_their_page(example: Example) -> None:
    """What is measured is what the page of the example says, the installation included."""
    text = (ROOT / example.page).read_text(encoding="utf-8")
    commands = [INSTALL, *example.commands, *([example.alongside] if example.alongside is not None else [])]
    assert [command for command in commands if command not in text] == []
