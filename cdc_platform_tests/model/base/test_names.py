"""Names: safe, distinct, and quoted so that nothing escapes."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.errors import SettingError
from cdc_platform.model.base.names import (
    MAX_COLUMNS,
    check_identifier,
    find_table,
    is_reserved_column,
    lake_table_name,
    long_table_reason,
    partition_key,
    quote_spanner,
    quote_spark,
    unfit_columns_reason,
)
from cdc_platform.model.schema.table_options import DELETED, DELETED_AT, ORDERING_KEY
from cdc_platform.spark.tables import net_changes
from cdc_platform_tests.strategies import micros, source_table_names

YEAR_1970_MICROS = 0


def test_root_has_a_fixed_key() -> None:
    """The query without a token is called root, whenever the stream began."""
    assert partition_key("", 5) == "root"


def test_what_no_table_of_the_lake_can_have_is_known() -> None:
    """Iceberg's own columns in any case, the lake's, and all internal columns of changes."""
    files = Path(net_changes.__file__).parent.glob("*.py")
    texts = [file.read_text(encoding="utf-8") for file in files]
    ours = {word for text in texts for word in re.findall(r'"(__[a-z_]+)[0-9"{]', text)} - {"__pycache__"}
    assert set() == {word for word in ours if not is_reserved_column(word)}
    assert all(
        map(
            is_reserved_column,
            ("_file", "_DELETED", "__names_a", "__KEY_0", DELETED, DELETED_AT, ORDERING_KEY),
        )
    )
    assert all(
        map(is_reserved_column, ("", "_f\u0131le", "__DELETED_AT", "_po\u017f", "__copy", "xs.Element"))
    )
    assert not any(map(is_reserved_column, ("deleted", "__deletes", "_names_a")))


def test_names_that_are_too_long_have_a_short_reason() -> None:
    """A column has 255 characters at most, a table at the source 1,000; the reason shows the beginning."""
    assert (unfit_columns_reason(["a", "n" * 255]), long_table_reason("t" * 1_000)) == (None, None)
    columns, table = unfit_columns_reason(["a", "n" * 60_000]), long_table_reason("t" * 1_001)
    assert columns is not None
    assert table is not None
    assert "60000 characters, but the limit is 255: `nnn" in columns
    assert "1001 characters, but the limit is 1000: `ttt" in table
    assert max(len(columns), len(table)) < 300


def test_an_event_has_so_many_columns_at_most() -> None:
    """As many columns as any known source has are one row; more are refused, and counted in the reason."""
    names = [f"c{number}" for number in range(MAX_COLUMNS + 1)]
    assert unfit_columns_reason(names[:-1]) is None
    assert unfit_columns_reason(names) == (
        "The event has 4097 columns, but the limit is 4096: leave some of them out at the source"
    )


def test_partition_key_begins_with_the_start() -> None:
    """A key is the start of the partition and a digest of its token."""
    assert partition_key("a", 1_795_239_920_999_999) == "20261121T054520Z-ca978112"


@given(st.text(min_size=1), micros(YEAR_1970_MICROS), micros(YEAR_1970_MICROS))
def test_partition_keys_are_safe_and_sort_by_start(token: str, start: int, other: int) -> None:
    """Keys have only characters that a file name may have, and sort by second of their start."""
    key, other_key = partition_key(token, start), partition_key(token, other)
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", key)
    assert (start // 10**6 < other // 10**6) == (key < other_key)


@given(st.lists(source_table_names(), unique=True, min_size=2, max_size=20))
def test_lake_tables_never_collide(names: list[str]) -> None:
    """Different source tables have different lake tables."""
    assert len(names) == len({lake_table_name(name) for name in names})


@given(source_table_names())
def test_lake_table_names_are_safe(name: str) -> None:
    """A lake table has letters, digits and underscores only; a safe name stays as it is."""
    safe = lake_table_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_]+", safe)
    assert lake_table_name(safe) == safe


def test_a_long_name_is_cut() -> None:
    """A folder's name has 255 characters at most; two long names stay two."""
    names = [lake_table_name("x" * 300 + end) for end in "yz"]
    assert [len(name) for name in names] == [200, 200]
    assert len(set(names)) == 2
    assert lake_table_name(names[0]) == names[0]


def test_a_table_is_found_by_each_of_its_names() -> None:
    """The name at the source and the name in the lake mean one table; nothing else does."""
    names = ("a.b", "a_b", "c")
    assert [find_table(name, iter(names)) for name in names] == [*names]
    assert find_table(lake_table_name("a.b"), names) == "a.b"
    assert find_table("A.B", names) is None


def test_name_in_a_named_schema_carries_a_digest() -> None:
    """A table of a named schema cannot be taken for one that is called the same with an underscore."""
    assert re.fullmatch(r"sales_orders_[0-9a-f]{6}", lake_table_name("sales.orders"))


@pytest.mark.parametrize("value", ["a", "bank", "bank_2", "a" * 63])
def test_identifier_is_returned(value: str) -> None:
    """A name that may be used comes back unchanged."""
    assert value == check_identifier(value)


@pytest.mark.parametrize("value", ["", "Bank", "2bank", "bank-2", "bank\n", "a" * 64, "é"])
def test_bad_identifier_is_refused(value: str) -> None:
    """The error names the setting and says what is allowed."""
    with pytest.raises(SettingError, match="`name` must begin with a lower-case letter") as caught:
        check_identifier(value)
    assert caught.value.setting == "name"


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("accounts", "`accounts`"),
        ("sales.orders", "`sales`.`orders`"),  # named schema
        ("a`b\\c\nd", "`a\\`b\\\\c\\nd`"),  # nothing ends the quotes
    ],
)
def test_quoting_for_spanner(identifier: str, expected: str) -> None:
    """Identifiers are quoted part by part, and cannot leave their quotes."""
    assert expected == quote_spanner(identifier)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_quoting_for_spark_can_be_undone(parts: list[str]) -> None:
    """Quoted parts are the parts again when they are read by Spark's rule of doubled back quotes."""
    names = re.findall(r"`((?:[^`]|``)*)`(?:\.|\Z)", quote_spark(*parts))
    assert parts == [part.replace("``", "`") for part in names]
