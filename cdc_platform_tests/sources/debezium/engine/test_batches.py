"""Names of schema blocks in the engine's batches."""

import multiprocessing
from pathlib import Path

import pytest

from cdc_platform.sources.debezium.engine.batches import SchemaBlocks
from cdc_platform.sources.debezium.engine.jvm import start_java

pytestmark = pytest.mark.integration


def wrapped(spool: Path) -> list[str]:
    """Return values of two schemas, twice in turn; Java stays in the process.

    The files are deleted in between, and a schema that is converted again writes its file again.
    """
    start_java(spool / "engine.log")
    import jpype

    builder = jpype.JClass("org.apache.kafka.connect.data.SchemaBuilder")
    schemas = [builder.struct().field(name, builder.int64().build()).build() for name in ("a", "b")]
    blocks = SchemaBlocks(spool)
    texts = [blocks.wrap("all", "value", "1", schema) for schema in schemas]
    for path in (spool / "schemas").iterdir():
        path.unlink()
    return texts + [blocks.wrap("all", "value", "1", schema) for schema in (*schemas, None)]


@pytest.mark.usefixtures("capturing")
def test_schemas_that_alternate_in_a_topic_are_converted_once(tmp_path: Path) -> None:
    """Such a topic has the events of tables that `ByLogicalTableRouter` joins."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        first, second, *again, without = pool.apply(wrapped, (tmp_path,))
    assert not [*(tmp_path / "schemas").iterdir()]
    assert first != second
    assert [first, second] == again
    assert without == "1"
