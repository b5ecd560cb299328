"""Read functions of placements are known by their names, and partitions by function and token."""

import pytest

from cdc_platform.sources.spanner.client.placements import (
    has_placements,
    placed_token,
    placement_functions,
    split_token,
)

WHOLE = "READ_bank"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"partition_mode": "MUTABLE_KEY_RANGE"}, False),
        ({"per_placement_tvf": "false"}, False),
        ({"per_placement_tvf": "TRUE"}, True),
    ],
)
def test_an_option_says_whether_there_are_placements(options: dict[str, str], expected: bool) -> None:
    """Most streams have one read function."""
    assert expected is has_placements(options)


@pytest.mark.parametrize(
    ("routines", "streams", "placed", "expected"),
    [
        (["READ_bank_eu", "READ_bank_asia", "net_worth"], ["bank"], [], ["READ_bank_asia", "READ_bank_eu"]),
        # The function of the whole stream, if there is one, would return everything once more.
        (["READ_bank", "READ_bank_eu"], ["bank"], [], ["READ_bank_eu"]),
        # The names of other streams begin with the same letters, and those of their functions, too.
        (["READ_bank_eu", "READ_bank_audit", "READ_banks_eu"], ["bank", "bank_audit"], [], ["READ_bank_eu"]),
        (["READ_bank_eu", "READ_bank_audit_eu"], ["bank", "bank_audit"], ["bank_audit"], ["READ_bank_eu"]),
        # One without placements has one function: the other is of a placement that is called `audit_eu`.
        (["READ_bank_audit", "READ_bank_audit_eu"], ["bank", "bank_audit"], ["ba"], ["READ_bank_audit_eu"]),
        # GoogleSQL's names know no case.
        (["Read_Bank_eu"], ["bank"], [], ["Read_Bank_eu"]),
        ([], ["bank"], [], []),
    ],
)
def test_functions_of_placements_are_found_by_their_names(
    routines: list[str], streams: list[str], placed: list[str], expected: list[str]
) -> None:
    """They begin with the name of the stream's function, and with no longer one of a stream that has some."""
    others, placed_others = ([f"READ_{stream}" for stream in names] for names in (streams, placed))
    assert expected == placement_functions(routines, WHOLE, others, placed_others)


@pytest.mark.parametrize("own", ["", "__8BAYEHAnEaeCAD", "a#b"])
def test_a_token_names_its_function(own: str) -> None:
    """Function and own token of a partition come back from the platform's token."""
    assert ("READ_bank_eu", own) == split_token(placed_token("READ_bank_eu", own), WHOLE)


@pytest.mark.parametrize("token", ["", "__8BAYEHAnEaeCAD", "a#b", "READ_other_eu#t"])
def test_a_token_without_a_function_stays_as_it_is(token: str) -> None:
    """Most streams have one read function, and what their tokens look like is Spanner's business."""
    assert (WHOLE, token) == split_token(token, WHOLE)
