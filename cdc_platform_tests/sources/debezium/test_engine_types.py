"""Types that the engine sends always, sometimes, as base64 of their texts, or not at all; users' types."""

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cdc_platform.model.stream.events import SourceEvent
from cdc_platform.model.stream.records import ModType
from cdc_platform.sources.debezium.engine.engine_process import EngineProcess
from cdc_platform.sources.debezium.engine.spool import Spool
from cdc_platform.sources.debezium.rows.decoder import Decoder
from cdc_platform.sources.debezium.settings.connector import NullPolicy
from cdc_platform.sources.debezium.settings.debezium_settings import DebeziumSettings, FilesInput
from cdc_platform.sources.debezium.wire.stored_blocks import use_blocks_of
from cdc_platform_tests.servers.postgresql import Cluster
from cdc_platform_tests.sources.debezium.spooled import wait_until
from cdc_platform_tests.support.debezium.databases import database, play, settings_for

pytestmark = pytest.mark.integration

CHANGES: Final = 4
"""Two rows are inserted and updated."""
SENT: Final[dict[str, tuple[str, str]]] = {
    # column: type, value
    "bits": ("bit(11)", "B'00000000101'"),
    "longest_in_line": ("bit(152)", "repeat('01', 76)::bit(152)"),
    "varying": ("bit varying(20)", "B'101'"),
    "longest_varying": ("bit varying(152)", "repeat('1', 152)::varbit"),
    "book": ("isbn", "'978-0-393-04002-9'"),
}
OUT_OF_LINE: Final[dict[str, tuple[str, str]]] = {
    "long_bits": ("bit(153)", "repeat('1', 153)::bit(153)"),
    "long_varying": ("bit varying", "repeat('1', 153)::varbit"),
}
UNKNOWN: Final[dict[str, tuple[str, str, str]]] = {
    # column: type, value, the text that base64 stands for
    "a_lseg": ("lseg", "'[(1,2),(3,4)]'", "[(1.0,2.0),(3.0,4.0)]"),
    "a_path": ("path", "'[(1,2)]'", "[(1.0,2.0)]"),
    "a_polygon": ("polygon", "'((1,2),(3,4))'", "((1.0,2.0),(3.0,4.0))"),
    "a_box": ("box", "'(2,2),(1,1)'", "(2.0,2.0),(1.0,1.0)"),
    "a_line": ("line", "'{1,2,3}'", "{1.0,2.0,3.0}"),
    "a_circle": ("circle", "'<(1,2),3>'", "<(1.0,2.0),3.0>"),
    "a_pair": ("pair", "ROW(1, 'x')::pair", "(1,x)"),
    "a_multirange": ("int4multirange", "'{[1,3)}'", "{[1,3)}"),
    "an_ean": ("ean13", "'978-0-393-04002-9'", "978-0-393-04002-9"),
}
ABSENT: Final[dict[str, tuple[str, str]]] = {
    "xmls": ("xml[]", "ARRAY['<a/>'::xml]"),
    "points": ("point[]", "ARRAY[point(1, 2)]"),
    "monies": ("money[]", "ARRAY['1.50'::money]"),
    "intervals": ("interval[]", "ARRAY['1 day'::interval]"),
    "varyings": ("bit varying(20)[]", "ARRAY[B'101'::varbit(20)]"),
}
OWN: Final[dict[str, tuple[str, str, object, str]]] = {
    # column: type that its user has made, value, what the log has, type in the lake
    "a_count": ("far.positive", "7", 7, "INT64"),
    "a_price": ("price", "1.50", "1.50", "DECIMAL"),
    "a_moment": ("moment", "'2024-02-29 07:04:56.5+00'", "2024-02-29T07:04:56.500000Z", "TIMESTAMP"),
    "octets": ("octets", "'\\xff00'", "/wA=", "BYTES"),
    "a_state": ("_state", "'sad'", "sad", "STRING"),
    "states": ("_state[]", "'{sad}'", ["sad"], "ARRAY"),
    "far_moods": ("far.mood[]", "'{glad}'", ["glad"], "ARRAY"),
}
WITHOUT_MARKER: Final = frozenset({*OUT_OF_LINE, "states", "far_moods"})
"""Columns that lie out of line and arrive as null then."""
COLUMNS: Final = {
    name: (kind, value) for name, (kind, value, *_) in (SENT | OUT_OF_LINE | UNKNOWN | ABSENT | OWN).items()
}


def changes(server: Cluster, name: str, spool: Path, properties: Mapping[str, str]) -> list[SourceEvent]:
    """Return the changes of two rows that are updated, one with values and one of nulls."""
    columns = ", ".join(f"{column} {kind}" for column, (kind, _) in COLUMNS.items())
    external = ", ".join(
        f"ALTER {column} SET STORAGE EXTERNAL" for column in SENT | OUT_OF_LINE if column != "book"
    )
    values = ", ".join(value for _, value in COLUMNS.values())
    settings = replace(settings_for(server, name, spool, **properties), with_schemas=True)
    with database(server, name):
        play(
            server,
            name,
            [
                "CREATE EXTENSION isn",
                "CREATE TYPE pair AS (a int, b text)",
                "CREATE SCHEMA far",
                "CREATE DOMAIN far.positive AS int CHECK (value > 0)",
                "CREATE DOMAIN price AS numeric(10,2)",
                "CREATE DOMAIN moment AS timestamptz",
                "CREATE DOMAIN octets AS bytea",
                "CREATE TYPE _state AS ENUM ('sad')",
                "CREATE TYPE far.mood AS ENUM ('glad')",
                # A text that stays in its row makes this so long that whatever can be moved out of it is.
                f"CREATE TABLE t (id int PRIMARY KEY, n int, {columns})",
                "ALTER TABLE t ADD filler text DEFAULT repeat('x', 3000)",
                f"ALTER TABLE t ALTER filler SET STORAGE PLAIN, {external}",
                "CREATE TABLE there (id int PRIMARY KEY)",
                "INSERT INTO there VALUES (1)",
            ],
        )
        with EngineProcess(settings) as engine:
            # What comes after the row of `there` is streamed.
            wait_until(lambda: len(decoded(spool)) == 1, engine)
            play(
                server,
                name,
                [f"INSERT INTO t SELECT 1, 0, {values}", "INSERT INTO t VALUES (2)", "UPDATE t SET n = 1"],
            )
            wait_until(lambda: len(decoded(spool)) == 1 + CHANGES, engine)
            engine.stop()
    return decoded(spool)[1:]


def decoded(spool: Path) -> list[SourceEvent]:
    """Return all changes of rows that are in a spool."""
    use_blocks_of(spool)
    policies = {"*": NullPolicy.UNAVAILABLE}
    decoder = Decoder(DebeziumSettings(FilesInput("unused"), null_policies=policies))
    lines = (line for file in Spool(spool).files() for line in file.lines())
    return [event for event in decoder.decode_lines(lines) if isinstance(event, SourceEvent)]


@pytest.mark.parametrize("includes_unknown", [False, True])
def test_what_is_sent_of_types_that_the_connector_hardly_knows(
    capturing: Cluster, tmp_path: Path, *, includes_unknown: bool
) -> None:
    """Nothing without `include.unknown.datatypes`, and base64 with it; a short value is always sent."""
    name = f"unknown_{includes_unknown}".lower()
    properties = {"include.unknown.datatypes": str(includes_unknown).lower()}
    inserted, _, updated, nulls = changes(capturing, name, tmp_path / "spool", properties)
    assert (updated.mod_type, nulls.mod_type) == (ModType.UPDATE, ModType.UPDATE)
    row = json.loads(inserted.new_values or "")
    types = [*SENT, *OUT_OF_LINE, *OWN, *(UNKNOWN if includes_unknown else ())]
    assert sorted(["n", "filler", *types]) == sorted(row)
    assert [row[column] for column in ("bits", "varying", "book")] == ["00000000101", "101", "0-393-04002-X"]
    codes = {column["name"]: column["type"]["code"] for column in json.loads(inserted.column_types)}
    expected = {column: (value, code) for column, (_, _, value, code) in OWN.items()}
    assert expected == {column: (row[column], codes[column]) for column in OWN}
    if includes_unknown:
        texts = {column: b64decode(row[column]).decode() for column in UNKNOWN}
        assert {column: text for column, (_, _, text) in UNKNOWN.items()} == texts
    marked = {"a_path", "a_polygon", "a_pair"} if includes_unknown else set()
    assert marked | WITHOUT_MARKER == {*updated.unavailable_columns}
    assert {*WITHOUT_MARKER} == {*nulls.unavailable_columns}
    assert json.loads(updated.new_values or "").items() <= (row | {"n": 1}).items()
    assert {json.loads(nulls.new_values or "")[column] for column in SENT} == {None}
