"""Names of schema blocks in the engine's batches."""

from pathlib import Path

import pytest

from cdc_platform.sources.debezium.engine.batches import SchemaBlocks

jpype = pytest.importorskip("jpype")


class Schema(str):
    """Stands for Kafka's schema: its text is its JSON."""

    __slots__ = ()

    def equals(self, other: object) -> bool:
        """Compare it as Java does."""
        return self == other


class Converter:
    """Stands for Kafka's converter."""

    def __init__(self) -> None:
        self.converted: list[str] = []

    def configure(self, _settings: object, _is_key: object) -> None:
        """Take no settings."""

    def asJsonSchema(self, schema: Schema) -> str:  # noqa: N802  Kafka's name
        """Return the JSON."""
        self.converted.append(schema)
        return schema


def test_schemas_that_alternate_in_a_topic_are_converted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event of tables that `ByLogicalTableRouter` joins had its block converted and compared."""
    converter = Converter()
    monkeypatch.setattr(jpype, "JClass", lambda name: (lambda: converter) if "json" in name else dict)
    blocks, schemas = SchemaBlocks(tmp_path), [Schema("{}"), Schema("[]")]
    texts = [blocks.wrap("all", "value", "1", schema) for schema in (*schemas, *schemas, None)]
    assert schemas == converter.converted
    names = sorted(f'{{"schema":"schemas/{path.name}","payload":1}}' for path in tmp_path.glob("schemas/*"))
    assert names == sorted(texts[:2]) == sorted(texts[2:4])
    assert texts[4] == "1"
