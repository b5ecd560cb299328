"""One sync of each source with everything among good rows that nothing can hold: the command ends well.

A sync takes longer than all the rest, so all bad values of a source come in one. The command runs in the
process of the tests, with the session that all tests share.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cdc_platform.components.loading import load_settings
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.base.stored_names import CHECK_RESULTS
from cdc_platform.pipeline.checks.unlogged_checks import BEHIND_WAIT
from cdc_platform.pipeline.opened.pipeline import open_pipeline
from cdc_platform.read import open_tables
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import Dialect, SimulatorSettings
from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.servers.kafka import Broker
from cdc_platform_tests.sources.datastream.generated_events import scenario, write_avro
from cdc_platform_tests.sources.debezium.written_events import TABLE
from cdc_platform_tests.sources.spanner.servers import SIMULATOR, Server, connected
from cdc_platform_tests.spark_fixtures import TEST_SPARK
from cdc_platform_tests.support.hostile import datastream as hostile_datastream
from cdc_platform_tests.support.hostile import debezium as hostile_debezium
from cdc_platform_tests.support.hostile.spanner import bad_records, is_of_accounts
from cdc_platform_tests.support.hostile.values import HALF
from cdc_platform_tests.support.pipelines import log_rows, state_of
from cdc_platform_tests.support.proxies.spanner_additions import Additions, adding

pytestmark = pytest.mark.integration

Rows = Mapping[Any, Mapping[str, Any]]
"""Rows of a table by their key; columns that are NULL are left out."""


@dataclass
class Sent:
    """Input of a source, and the expected result of a sync.

    Args:
        component: class of the pipeline's component, with its module.
        source: its settings, as YAML has them.
        reasons: of the bad records, each a part of the text that quarantine has.
        tables: the rows to be published by table, and the column of their keys; none where a server has it.
        server: of Spanner.
        unread: a part of the reason for which a file is not read; empty where all are.
    """

    component: str
    source: dict[str, Any]
    reasons: list[str]
    tables: dict[str, tuple[str, Rows]] = field(default_factory=dict)
    server: Server | None = None
    unread: str = ""


def _debezium_rows() -> Rows:
    rows: dict[Any, Mapping[str, Any]] = {
        key: {"id": key, "n": 1, "big": text} for key, text in hostile_debezium.GOOD.items()
    }
    return {**rows, 104: {"id": 104, "n": 1, "big": "a", hostile_debezium.CONTROL: "c"}}


def _debezium(source: dict[str, Any], reasons: list[str], unread: str = "") -> Sent:
    fields = {"input": source, "columns": hostile_debezium.DECLARED}
    tables = {TABLE: ("id", _debezium_rows())}
    return Sent("debezium.DebeziumPipeline", fields, reasons, tables, unread=unread)


def _among(good: list[bytes], bad: list[bytes]) -> list[bytes]:
    """Return good lines before, between and behind bad ones."""
    step = len(bad) // (len(good) - 1)
    return [
        line
        for place, good_line in enumerate(good)
        for line in (good_line, *bad[place * step : (place + 1) * step])
    ] + (bad[len(good) * step :] and [*bad[len(good) * step :], good[0]])


@contextmanager
def debezium_files(folder: Path, _request: pytest.FixtureRequest) -> Iterator[Sent]:
    """Lines of a file, and behind it a gzip beyond its bound, which stays unread."""
    bad = list(hostile_debezium.BAD_LINES.values())
    octets, reason = hostile_debezium.NOT_UTF8
    good = [line.encode() for line in hostile_debezium.good_lines()]
    lines = _among(good, [*(record.sent.encode() for record in bad), octets])
    (folder / "a.jsonl").write_bytes(b"\n".join([*lines, b""]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b" " * 2**23))
    files = {"path": str(folder), "max_unpacked_bytes": 2**22}
    yield _debezium(
        {"files": files},
        [*(record.reason for record in bad), reason],
        f"The gzip has more than {2**22} bytes of text",
    )


@contextmanager
def debezium_topics(folder: Path, request: pytest.FixtureRequest) -> Iterator[Sent]:
    """Messages of a topic: those of the lines whose key or value is bad, and one that is not UTF-8."""
    kafka: Broker = request.getfixturevalue("kafka")
    topic = f"{folder.name}.public.orders"
    kafka.create(topic, max_message_bytes=str(2**23))
    bad = list(hostile_debezium.BAD_MESSAGES.values())
    octets, reason = hostile_debezium.NOT_UTF8
    good = [line.encode() for line in hostile_debezium.good_lines()]
    lines = _among(good, [*(record.sent.encode() for record in bad), octets])
    kafka.send_octets(topic, [message_of(line) for line in lines])
    place = {"bootstrap_servers": kafka.address, "topics_pattern": topic.replace(".", "[.]")}
    reasons = [record.reason.replace(hostile_debezium.OF_LINE, hostile_debezium.OF_MESSAGE) for record in bad]
    reasons.append(reason.replace(hostile_debezium.OF_LINE, hostile_debezium.OF_MESSAGE))
    yield _debezium({"kafka": place}, reasons)


def message_of(line: bytes) -> tuple[bytes, bytes]:
    """Return key and value of a line, as they are written."""
    begin, middle = b'"key": ', b', "value": '
    key, _, value = line.partition(begin)[2].partition(middle)
    return key, value[:-1]


@contextmanager
def datastream(folder: Path, _request: pytest.FixtureRequest) -> Iterator[Sent]:
    """Lines of a file, and of a gzip with a line beyond the bound; Avro files, bad in part or as a whole."""
    bad = list(hostile_datastream.BAD_LINES.values())
    octets, reason = hostile_datastream.NOT_UTF8
    good = hostile_datastream.good_lines()
    lines = _among([line.encode() for line, _ in good], [*(record.sent.encode() for record in bad), octets])
    (folder / "lines.jsonl").write_bytes(b"\n".join(lines))
    (folder / "long.jsonl.gz").write_bytes(hostile_datastream.gzip_of_a_long_line())
    rows = [row for _, row in good] + hostile_datastream.GZIPPED
    of_avro: dict[Any, Mapping[str, Any]] = {}
    for name, (content, keys, _) in hostile_datastream.AVRO_FILES.items():
        (folder / f"{name}.avro").write_bytes(content)
        of_avro |= {key: {"c0": key, "t": '{"a":1}', "j": '{"a":1}'} for key in keys}
    tables: dict[str, tuple[str, Rows]] = {
        hostile_datastream.TABLE: ("id", {row["id"]: row for row in rows}),
        "s.t": ("c0", of_avro),
        "shop.documents": ("_id", _write_documents(folder / "documents.avro")),
    }
    reasons = [*(record.reason for record in bad), reason, hostile_datastream.TOO_LONG]
    reasons += [reason for _, _, reason in hostile_datastream.AVRO_FILES.values()]
    source = {"path": str(folder), **hostile_datastream.SETTINGS}
    yield Sent("datastream.DatastreamPipeline", source, [*reasons, hostile_datastream.BAD_KEY], tables)


def _write_documents(file: Path) -> Rows:
    """Write documents of MongoDB, one with a bad key, and return the rows of the others."""
    documents: list[dict[str, Any]] = deepcopy(scenario("mongodb")[:3])
    for document in documents:
        document["source_metadata"]["collection"] = "documents"
    documents[1]["payload"]["_id"] = json.dumps(HALF)
    write_avro(file, documents)
    payloads = [document["payload"] for document in (documents[0], documents[2])]
    return {
        payload["_id"]: {"_id": payload["_id"], "data": json.dumps(payload["data"], separators=(",", ":"))}
        for payload in payloads
    }


@contextmanager
def spanner(dialect: Dialect) -> Iterator[Sent]:
    """Records among those of a simulator."""
    bad = bad_records(dialect)
    additions = Additions([record.next_to_sound(name) for name, record in bad.items()], is_of_accounts)
    # So many a second that the first cycle has a good record for each bad one, however soon it begins.
    settings = SimulatorSettings(seed=3, dialect=dialect, accounts=40, rate=100, partitions=3, history_s=10)
    with (
        Simulator(settings) as simulator,
        adding(simulator.host, additions) as host,
        connected(simulator) as database,
    ):
        names = ("project", "instance", "database", "change_stream")
        source = {name: getattr(settings, name) for name in names} | {"emulator_host": host}
        server = Server(SIMULATOR, dialect, simulator.host, database, simulator.origin_micros, simulator)
        yield Sent(
            "spanner.SpannerPipeline", source, [record.reason for record in bad.values()], server=server
        )
        assert additions.left == []


@contextmanager
def spanner_googlesql(_folder: Path, _request: pytest.FixtureRequest) -> Iterator[Sent]:
    """Records as structs."""
    with spanner(Dialect.GOOGLESQL) as sent:
        yield sent


@contextmanager
def spanner_postgresql(_folder: Path, _request: pytest.FixtureRequest) -> Iterator[Sent]:
    """Records as JSON."""
    with spanner(Dialect.POSTGRESQL) as sent:
        yield sent


Sending = Callable[[Path, pytest.FixtureRequest], AbstractContextManager[Sent]]
SOURCES: Final[tuple[Sending, ...]] = (
    *(datastream, debezium_files, debezium_topics),
    *(spanner_googlesql, spanner_postgresql),
)


def declare(sent: Sent, name: str, folder: Path, lake: LakeSettings) -> Path:
    """Write the file of the pipeline, and return it."""
    spark = {"driver_memory": TEST_SPARK.driver_memory, "conf": {**TEST_SPARK.conf}}
    attributes = {"name": name, "source": sent.source, "lake": {"path": lake.path}, "spark": spark}
    if sent.server is not None:
        attributes["tables"] = ["accounts"]
    document = {"type": f"cdc_platform.components.{sent.component}", "attributes": attributes}
    defs = folder / "defs.yaml"
    defs.write_text(yaml.safe_dump(document), encoding="utf-8")
    return defs


def quarantined_in(defs: Path) -> list[dict[str, Any]]:
    """Return what the command lists."""
    code, output, _ = run("quarantine", "list", defs, "--json")
    assert code == 0
    return list(json.loads(output))


def assert_quarantined(reasons: list[str], records: list[dict[str, Any]]) -> None:
    """Each reason is that of one record, and no record is left over."""
    reasons_left = [record["reason"] for record in records]
    missing = []
    for reason in sorted(reasons, key=len, reverse=True):
        matching = next((record for record in reasons_left if reason in record), None)
        if matching is None:
            missing.append(reason)
        else:
            reasons_left.remove(matching)
    assert (missing, [record[:300] for record in reasons_left]) == ([], [])


def assert_published(sent: Sent, defs: Path) -> None:
    """The tables have exactly the good rows."""
    tables = open_tables(defs).at()
    for table, (key, rows) in sent.tables.items():
        published = tables.arrow(table).to_pylist()
        named = [
            {name: value for name, value in row.items() if value is not None and not name.startswith("__")}
            for row in published
        ]
        assert rows == {row[key]: row for row in named}
        assert len(rows) == len(published)
    if sent.server is not None:
        sql = "SELECT account_id, owner, balance FROM accounts ORDER BY account_id"
        there = sent.server.select(sql, read_timestamp=tables.position)
        published = tables.arrow("accounts", columns=["account_id", "owner", "balance"]).to_pylist()
        assert [tuple(row) for row in there] == sorted(tuple(row.values()) for row in published)
        assert there


def _state(sent: Sent, defs: Path) -> object:
    """Return what a sync without news leaves alone, all but the last check results; None with a server."""
    pipeline = open_pipeline(load_settings(defs))
    if sent.server is not None:
        return None
    if sent.unread:
        return log_rows(pipeline)
    return {name: state for name, state in state_of(pipeline).items() if name != CHECK_RESULTS}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sending", SOURCES, ids=lambda sending: sending.__name__)
def test_bad_values_are_quarantined_and_all_else_is_published(
    sending: Sending,
    session_lake: LakeSettings,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """The command ends with 0; good rows are in the tables, each bad one is listed with its own reason.

    The line of a cycle counts them, `check` warns of them, and a second sync changes nothing.
    """
    events = tmp_path / "events"
    events.mkdir()
    name = f"bad_{sending.__name__}"
    with sending(events, request) as sent:
        defs = declare(sent, name, tmp_path, session_lake)
        code, output, errors = run("sync", defs, "--until-caught-up")
        assert code == 0, output + errors
        count = len(sent.reasons)
        assert f"quarantine {count} new, {count} open" in output
        records = quarantined_in(defs)
        assert_quarantined(sent.reasons, records)
        listed = run("quarantine", "list", defs)[1]
        assert listed.count("  open ") == min(count, 50)
        assert_published(sent, defs)

        code, output, errors = run("check", defs)
        assert code == 0, output + errors
        assert re.search(r"warn +quarantine_empty +records in quarantine: ", output)
        assert ("warn   files_readable" in output, sent.unread in output) == (bool(sent.unread), True)
        holds_back = bool(sent.unread) and sent.component.startswith("debezium")
        assert (BEHIND_WAIT in output) is holds_back

        state = _state(sent, defs)
        code, output, errors = run("sync", defs, "--until-caught-up")
        assert code == 0, output + errors
        assert records == quarantined_in(defs)
        assert_published(sent, defs)
        assert state == _state(sent, defs)
