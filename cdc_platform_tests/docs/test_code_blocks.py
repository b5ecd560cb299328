"""Every code block of the pages is run, validated, or says that it is not."""

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cdc_platform.components.loading import load_each
from cdc_platform.errors import SettingError
from cdc_platform_tests.docs.code_blocks import (
    BANK,
    BLOCKS,
    CHECKED,
    POSTGRESQL,
    SHOWN,
    SIMULATOR,
    Block,
    blocks_in,
    blocks_of,
)
from cdc_platform_tests.servers.postgresql import Cluster
from cdc_platform_tests.support.debezium.databases import connect, database

SPANNER: Final = {"project": "p", "instance": "i", "database": "d", "change_stream": "s"}
KAFKA: Final = {"bootstrap_servers": "b:9092", "topics_pattern": ".*"}
SOURCES: Final[dict[str, dict[str, Any]]] = {
    "spanner.SpannerPipeline": SPANNER,
    "datastream.DatastreamPipeline": {"path": "files"},
    "debezium.DebeziumPipeline": {"input": {"kafka": KAFKA}},
}
PLACES: Final[tuple[tuple[str, ...], ...]] = ((), ("source",), ("source", "input", "kafka"))
"""Groups of a pipeline's settings from which pages show a part."""
VARIABLE: Final = re.compile(r"\benv\.(\w+)")


def named(block: Block) -> str:
    """Return the name of a block in the names of tests."""
    return block.place


def test_every_block_is_run_or_says_that_it_is_not() -> None:
    """A block has a language that a test checks, or is among those that one runs, or is marked."""
    run = BANK | POSTGRESQL | SIMULATOR
    loose = [
        block.place
        for block in BLOCKS
        if block.is_run and block.language not in {*CHECKED, SHOWN} and block.kind not in run
    ]
    assert loose == []


@pytest.mark.parametrize("block", blocks_of("json"), ids=named)
def test_json_is_json(block: Block) -> None:
    """A block of JSON is one value after the other."""
    text, decoder = block.text.strip(), json.JSONDecoder()
    while text:
        _, end = decoder.raw_decode(text)
        text = text[end:].lstrip()


def merged(base: Any, part: Any) -> Any:
    """Return settings with those of a part in their place; one way in takes the place of another."""
    if (
        not isinstance(base, dict)
        or not isinstance(part, dict)
        or set(base) <= {"files", "kafka"} - set(part)
    ):
        return part
    return {**base, **{name: merged(base.get(name), value) for name, value in part.items()}}


def documents_with(text: str) -> list[str]:
    """Return the files of pipelines that a block is, or is a part of."""
    part = yaml.safe_load(text)
    if "type" in part and "attributes" in part:
        return [text]
    documents = []
    for component, source in SOURCES.items():
        base = {"name": "shop", "source": source, "lake": {"path": "lake"}}
        for place in PLACES:
            nested = part
            for name in reversed(place):
                nested = {name: nested}
            attributes = merged(base, nested)
            documents.append(
                yaml.safe_dump({"type": f"cdc_platform.components.{component}", "attributes": attributes})
            )
    return documents


def problem_of(document: str, defs: Path) -> str | None:
    """Return what keeps the file of a pipeline from being taken, None for one that is."""
    defs.write_text(document, encoding="utf-8")
    try:
        load_each(defs)
    except SettingError as error:
        return str(error)
    return None


@pytest.mark.parametrize("block", blocks_of("yaml"), ids=named)
def test_yaml_is_taken(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a page shows loads as it stands, and a part of one in its place."""
    for name in VARIABLE.findall(block.text):
        monkeypatch.setenv(name, "value")
    problems = [problem_of(document, tmp_path / "defs.yaml") for document in documents_with(block.text)]
    assert None in problems, "\n".join(filter(None, problems))


def test_a_setting_that_is_not_known_is_found(tmp_path: Path) -> None:
    """A part with a name that no kind of pipeline has is refused in every place."""
    documents = documents_with("lake: {path: lake, table_formats: 2}")
    assert None not in [problem_of(document, tmp_path / "defs.yaml") for document in documents]


@pytest.mark.integration
def test_sql_for_postgresql_runs(logical_server: Cluster) -> None:
    """The statements of a page are taken by PostgreSQL, in their order."""
    with database(logical_server, "pages") as name, closing(connect(logical_server, name)) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE SCHEMA inventory")
        for block in blocks_in(POSTGRESQL):
            cursor.execute(block.text)


SAMPLE: Final = {
    "commit_timestamp": "2026-01-31T08:00:00.123456Z",
    "server_transaction_id": "7",
    "changes": [{"table": "accounts", "mod_type": "UPDATE"}],
}


def event_at(micros: int) -> dict[str, Any]:
    """Return the event that Debezium's connector writes of the sample, at another time."""
    source = {"ts_us": micros, "server_transaction_id": "7", "table": "accounts"}
    return {"payload": {"source": source, "op": "u"}}


@pytest.mark.parametrize("block", blocks_in(SIMULATOR), ids=named)
def test_programs_for_the_simulator_run(block: Block, tmp_path: Path) -> None:
    """The test that a page shows passes, and its comparison counts what both files have."""
    (tmp_path / "truth.jsonl").write_text(json.dumps(SAMPLE), encoding="utf-8")
    # The comparison leaves out the last ten seconds.
    events = [event_at(1_769_846_400_123_456), event_at(1_769_846_420_000_000)]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
    program = tmp_path / "compare.py"
    program.write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program, "truth.jsonl", "events.jsonl"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in {"", "1 read, 0 missing, 0 extra or duplicate\n"}
