"""The component's schema is its documentation."""

from collections.abc import Iterator
from typing import Any

from cdc_platform.components.spanner import SpannerPipeline


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every property of a JSON schema and of its definitions, with the name of its model."""
    for name, part in {"SpannerPipeline": schema, **schema.get("$defs", {})}.items():
        for key, described in part.get("properties", {}).items():
            yield f"{name}.{key}", described


def test_every_setting_is_described() -> None:
    """Editors, `dg list components` and the UI say what each setting means."""
    schema = SpannerPipeline.model().model_json_schema()
    found = dict(properties(schema))
    assert [name for name, described in found.items() if not described.get("description")] == []
    assert len(found) > 30


def test_a_misspelled_setting_is_an_error_of_the_schema() -> None:
    """No model of the component takes unknown keys."""
    schema = SpannerPipeline.model().model_json_schema()
    models = {"SpannerPipeline": schema, **schema["$defs"]}
    assert set() == {name for name, part in models.items() if part.get("additionalProperties") is not False}
