"""Beam's SpannerIO, which reads the simulator as it reads Spanner; its metadata are on Google's emulator."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from cdc_platform.model.base.timestamps import from_rfc3339, to_rfc3339
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import (
    Dialect,
    PartitionMode,
    RecordSequences,
    RootParents,
    SimulatorSettings,
)
from cdc_platform_tests.java_options import SHORT_LIVED
from cdc_platform_tests.programs import ENVIRONMENT, start_command
from cdc_platform_tests.servers.bank import BankSettings, create_instance, open_client
from cdc_platform_tests.servers.jars import require_jars
from cdc_platform_tests.servers.spanner_router import router
from cdc_platform_tests.simulator.truth import ReadChange, assert_same_changes, changes_until, object_text

pytestmark = pytest.mark.integration

JARS: Final = (
    "org.apache.beam:beam-sdks-java-io-google-cloud-platform:2.72.0",
    "org.apache.beam:beam-runners-direct-java:2.72.0",
)
WITHOUT: Final = (
    "bigtable-client-core-config",
    "google-cloud-bigtable",
    "google-cloud-storage-control",
    "grpc-google-cloud-bigtable-v2",
    "proto-google-cloud-bigtable-admin-v2",
)
"""Spanner needs none of these, and not all repositories have their versions."""
READER: Final = Path(__file__).parent / "beam" / "ReadChanges.java"
WITHIN_S: Final = 240.0
"""A busy machine is slow, not wrong."""
HISTORY_S: Final = 10
PARTITIONS: Final = 4
"""At once; each lives one to two seconds."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The classpath of the reader."""
    jars = require_jars(*JARS, with_dependencies=True, without=WITHOUT)
    if shutil.which("javac") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("javac is missing; install a JDK of Java 17")
        pytest.skip("the reader must be compiled, and javac is missing")
    classes = str(tmp_path_factory.mktemp("beam"))
    options = (f"-J{option}" for option in SHORT_LIVED.split())
    subprocess.run(["javac", *options, "-cp", os.pathsep.join(jars), "-d", classes, READER], check=True)
    return os.pathsep.join((classes, *jars))


def settings(dialect: Dialect, **changed: Any) -> SimulatorSettings:
    """Return the settings of a history whose partitions churn."""
    chosen = {"seed": 7, "rate": 40, "accounts": 60, "partitions": PARTITIONS, "partition_life_s": 1.0}
    return SimulatorSettings(dialect=dialect, history_s=HISTORY_S, **{**chosen, **changed})


NULL_PARENT: Final = "null-parent"
FORMS: Final = {
    "googlesql": settings(Dialect.GOOGLESQL, record_sequences=RecordSequences.MIXED, all_types=True),
    "moving-postgresql": settings(Dialect.POSTGRESQL, partition_mode=PartitionMode.MUTABLE_KEY_RANGE),
    NULL_PARENT: settings(Dialect.GOOGLESQL, root_parents=RootParents.NULL),
}
"""By name: the simulators that Beam reads. Debezium reads each dialect in both modes."""


def create_database(settings: BankSettings) -> None:
    """Create an empty database on the emulator."""
    with open_client(settings) as client:
        create_instance(settings, client)
        client.instance(settings.instance).database(settings.database).create().result(WITHIN_S)


@dataclass(frozen=True)
class Reading:
    """What Beam has read of a simulator: the changes that it has, Beam's records, and how Beam ended."""

    expected: "Counter[ReadChange]"
    records: list[dict[str, Any]]
    outcome: str


@contextmanager
def arguments_of(simulator: Simulator, emulator: str, end_micros: int, file: Path) -> Iterator[list[str]]:
    """Yield the program's arguments for a simulator's stream up to a moment, and a file of records."""
    names = simulator.names()
    # All pipelines have one project and instance.
    metadata = f"metadata-{simulator.host.partition(':')[2]}"
    create_database(BankSettings(emulator, names["project"], names["instance"], metadata))
    databases = "projects/{project}/instances/{instance}/databases/".format_map(names)
    with router(simulator.host, databases + names["database"], emulator, databases + metadata) as host:
        yield [
            *(host, names["project"], names["instance"], names["database"], names["change_stream"], metadata),
            *(names["start_timestamp"], to_rfc3339(end_micros), str(file)),
        ]


@pytest.fixture(scope="module")
def readings(
    reader: str, still_emulator: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Reading]:
    """What Beam reads of a simulator of each form, all at once: its Java takes longest to start."""
    folder = tmp_path_factory.mktemp("read")
    expected = {}
    with ExitStack() as stack:
        arguments = list[str]()
        for form, settings in FORMS.items():
            simulator = stack.enter_context(Simulator(settings))
            end_micros = simulator.database.now_micros()
            expected[form] = changes_until(simulator, end_micros)
            place = arguments_of(simulator, still_emulator, end_micros, folder / form)
            arguments += stack.enter_context(place)
        command = ["java", "-Xmx1g", *SHORT_LIVED.split(), "-cp", reader, READER.stem, *arguments]
        program = stack.enter_context(start_command(folder / "log", command, ENVIRONMENT))
        assert program.ends_with(WITHIN_S) == 0, program.output()[-3000:]
    outcomes = dict(
        re.findall(rf"^{re.escape(str(folder))}/(\S+) ended: (.*)$", program.output(), re.MULTILINE)
    )
    return {
        form: Reading(changes, records_of(folder / form), outcomes[form])
        for form, changes in expected.items()
    }


def records_of(path: Path) -> list[dict[str, Any]]:
    """Return the data change records that a pipeline has written, none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def to_changes(record: dict[str, Any]) -> Iterator[ReadChange]:
    """Yield what a data change record says."""
    for mod in record["mods"]:
        yield ReadChange(
            from_rfc3339(record["commit"]),
            record["transaction"],
            record["table"],
            record["type"],
            object_text(mod["keys"]),
            object_text(None if record["type"] == "DELETE" else mod["new"]),
        )


@pytest.mark.parametrize("form", [form for form in FORMS if form != NULL_PARENT])
def test_beam_reads_the_history(readings: dict[str, Reading], form: str) -> None:
    """Beam gives every change of a stream whose partitions churn, each once, with all its values.

    In the second mode keys move meanwhile, between partitions that start, end and continue.
    """
    reading = readings[form]
    assert reading.outcome == "DONE"
    assert_same_changes(
        reading.expected, [change for record in reading.records for change in to_changes(record)]
    )
    assert len({record["partition"] for record in reading.records}) > 3 * PARTITIONS


def test_beam_fails_on_a_null_parent(readings: dict[str, Reading]) -> None:
    """Beam does not know the parents of the first partitions that the simulator sends on demand only."""
    assert "NullPointerException" in readings[NULL_PARENT].outcome
