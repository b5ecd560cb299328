"""The text of a JSON document is the same, whether it was parsed or not."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.sources.datastream.values.json_text import compact, normal, parsed

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(SCALARS, lambda part: st.lists(part) | st.dictionaries(st.text(), part), max_leaves=8)


@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_spaces_and_escapes_make_no_difference(
    value: Any, ascii_only: bool, indent: int | str | None
) -> None:
    """A document without duplicate members and signed zeros equals its parsed and compacted form."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert compact(parsed(text)) == normal(text)


def test_escapes_are_those_of_compact_texts() -> None:
    """An escape that JSON does not need is removed, and an escape of another text changes nothing."""
    text = r'{ "a\/\u00e9": ["\/", "\\u0041", "\u0041"], "b": "\u001F", "c": "\n" }'
    assert normal(text) == r'{"a/é":["/","\\u0041","A"],"b":"\u001f","c":"\n"}'
