"""Vocabulary of records: values of newer versions of the source never fail."""

import pytest

from cdc_platform.model.stream.records import WHOLE_ROW_UPDATES, ModType, ValueCaptureType


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("OLD_AND_NEW_VALUES", False),
        ("NEW_VALUES", False),
        ("NEW_ROW", True),
        ("NEW_ROW_AND_OLD_VALUES", True),
        ("SOMETHING_NEW", False),  # a partial update is always safe
    ],
)
def test_which_updates_are_whole_rows(text: str, expected: bool) -> None:
    """Only capture types that send the whole row make an update one."""
    assert expected is (ValueCaptureType(text) in WHOLE_ROW_UPDATES)


def test_unknown_mod_type_has_a_name() -> None:
    """A mod type that this version does not know is UNKNOWN, not an error."""
    assert ModType("UPSERT") is ModType.UNKNOWN
