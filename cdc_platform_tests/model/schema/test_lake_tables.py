"""Places in the lake: the first comer has one, and only one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.model.base.names import lake_table_name
from cdc_platform.model.schema.lake_tables import (
    LakeTable,
    claims_of,
    collisions,
    describe_refusals,
    find_refusals,
)
from cdc_platform_tests.strategies import source_table_names


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["Accounts", "transfers", "accounts"], {"accounts": "Accounts"}),
        (["accounts", "ACCOUNTS", "Accounts"], {"ACCOUNTS": "accounts", "Accounts": "accounts"}),
        (["Accounts", "transfers"], {}),  # case alone is not a clash
        (["sales.orders", "Sales.Orders", "sales_orders"], {}),  # their digests differ
    ],
)
def test_the_first_of_two_names_is_had(names: list[str], refused: dict[str, str]) -> None:
    """Of names that differ in nothing but case the first one has the place."""
    expected = {LakeTable(name): LakeTable(holder) for name, holder in refused.items()}
    assert expected == find_refusals(claims_of(names, histories=()), {})


@given(st.lists(source_table_names(), unique=True, max_size=20))
def test_without_refusals_names_are_distinct_in_every_catalog(names: list[str]) -> None:
    """Something is refused exactly where two tables would be one."""
    lowered = {lake_table_name(name).lower() for name in names}
    claims = tuple(claims_of(names, histories=()))
    assert len(names) - len(lowered) == len(find_refusals(claims, {}))
    assert (not collisions(claims)) == (len(lowered) == len(names))


def test_a_history_has_a_place_like_a_table() -> None:
    """It is refused where a table is there, as a table is where it is there itself."""
    table, history, other = LakeTable("t"), LakeTable("t", is_history=True), LakeTable("T__history")
    assert {other: history} == find_refusals(claims_of(["t", "T__history"], histories={"t"}), {})
    assert {history: other} == find_refusals(claims_of(["T__history", "t"], histories={"t"}), {})
    assert find_refusals((table, other), {}) == {}


def test_what_is_there_keeps_its_place() -> None:
    """A table that has a place keeps it before a new one; a refused table has no history."""
    claims = tuple(claims_of(["Users", "users"], histories={"Users"}))
    places = {"users": LakeTable("users")}
    assert {LakeTable("Users"): LakeTable("users")} == find_refusals(claims, places)


def test_refusals_say_what_to_do() -> None:
    """Each sentence names what is left out, what has its place, and where it can be had."""
    history, table = LakeTable("t", is_history=True), LakeTable("t__history")
    (of_table,) = describe_refusals({table: history})
    assert of_table.startswith("`t__history` is not in the lake: the history of `t` has that name")
    assert "in the setting `tables` of another pipeline" in of_table
    (of_history,) = describe_refusals({history: table})
    assert of_history.startswith("The history of `t` is not kept: `t__history` has that name")
