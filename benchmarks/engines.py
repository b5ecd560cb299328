"""Whether Trino and Flink read every cut of tables of both format versions, with the settings of the page.

The page is docs/engines.md. The catalog is in PostgreSQL and the lake in an S3 server. Each engine runs with
its Iceberg connector in one process, from its jars. It needs Maven, and for Trino the folder of a JDK 25 in
the environment variable TRINO_JAVA_HOME.

TRINO_JAVA_HOME=/usr/lib/jvm/jdk-25 python -m benchmarks.engines
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.measure.harness import Report, arguments, must_equal
from cdc_platform.components.loading import load_settings
from cdc_platform.java.class_archive import cache_folder
from cdc_platform.lake.commits.commits import fact, head
from cdc_platform.read import PublishedTables, open_tables
from cdc_platform.simulator.server import Simulator
from cdc_platform.simulator.wire.simulator_settings import SimulatorSettings
from cdc_platform.spark.session.session_settings import INTERPRETED, ONE_TASK
from cdc_platform_tests.servers.object_store import BUCKET, REGION, ObjectStore, object_store
from cdc_platform_tests.servers.postgresql import postgresql, postgresql_programs

PAGE: Final = Path(__file__).parents[1] / "docs" / "engines.md"
TRINO_BLOCK: Final = re.compile(r"```properties\n(connector\.name=iceberg\n.*?)```", re.DOTALL)
FLINK_BLOCK: Final = re.compile(r"```sql\n(CREATE CATALOG lake WITH .*?);", re.DOTALL)
SHORT_LIVED: Final = (
    # Java's best compiler would work for minutes on what runs for seconds. Without it Java keeps 48 MB for
    # compiled code, and throws code away once they are full.
    *("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=192m", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
)
OPENED: Final = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "nio", "util")]
VERSIONS: Final = (3, 2)
CYCLES: Final = 3
PUBLISH: Final = """
import sys
from cdc_platform.cli import main

for defs in sys.argv[2:]:
    for command in (["sync", defs, "--cycles", sys.argv[1]], ["cuts", defs, "--pin", "2"]):
        try:
            main(command)
        except SystemExit as end:
            if end.code:
                raise
"""
"""Runs the commands for some files one after the other with one Spark."""
PASSWORD: Final = "secret"  # noqa: S105  of a server that lives for minutes
BANK: Final = SimulatorSettings(
    seed=11, rate=10, accounts=30, partitions=4, partition_life_s=600, history_s=20
)
WITHIN_S: Final = 900.0


def write_defs(folder: Path, version: int, names: Mapping[str, object], uri: str, store: ObjectStore) -> Path:
    """Write the file of a pipeline whose tables have a format version, and return it."""
    source = {key: names[key] for key in ("project", "instance", "database", "change_stream")}
    catalog = {
        "type": "sql",
        "uri": uri,
        "user": "lake",
        "password": PASSWORD,
        "s3.endpoint": store.endpoint,
        "s3.region": REGION,
        "s3.access-key-id": store.access_key_id,
        "s3.secret-access-key": store.secret_access_key,
    }
    attributes = {
        "name": f"bank{version}",
        "source": source
        | {"emulator_host": names["emulator_host"], "start_timestamp": names["start_timestamp"]},
        "lake": {"path": f"s3://{BUCKET}/lake", "table_format_version": version, "catalog": catalog},
        "spark": {"master": "local[2]", "driver_memory": "1g", "conf": {**INTERPRETED, **ONE_TASK}},
    }
    path = folder / f"bank{version}.yaml"
    document = {"type": "cdc_platform.components.spanner.SpannerPipeline", "attributes": attributes}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Engine:
    """An engine: its folder here, Java's home and options, and how a query names a snapshot or a tag."""

    name: str
    java_home: str | None
    options: tuple[str, ...]
    at_snapshot: str
    at_tag: str

    @property
    def folder(self) -> Path:
        """The folder of its jars' list and of the program."""
        return Path(__file__).parent / self.name


TRINO: Final = Engine(
    "trino",
    os.environ.get("TRINO_JAVA_HOME"),
    ("--add-modules", "jdk.incubator.vector"),
    "FOR VERSION AS OF {}",
    "FOR VERSION AS OF '{}'",
)
FLINK: Final = Engine(
    "flink",
    os.environ.get("JAVA_HOME"),
    tuple(OPENED),
    "/*+ OPTIONS('snapshot-id'='{}') */",
    "/*+ OPTIONS('tag'='{}') */",
)


def write_flink_settings(folder: Path, uri: str, store: ObjectStore) -> Path:
    """Write the statement of the page, with the addresses and keys of these servers, and return the file."""
    (shown,) = FLINK_BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    options = dict(re.findall(r"'([^']+)' = '([^']*)'", str(shown)))
    options |= {
        "uri": f"jdbc:postgresql:{uri.partition(':')[2]}",
        "jdbc.user": "lake",
        "jdbc.password": PASSWORD,
        "warehouse": f"s3://{BUCKET}/lake",
        "client.region": REGION,
        "s3.endpoint": store.endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": store.access_key_id,
        "s3.secret-access-key": store.secret_access_key,
    }
    path = folder / "lake.sql"
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    path.write_text(f"CREATE CATALOG lake WITH ({pairs})", encoding="utf-8")
    return path


def write_trino_settings(folder: Path, uri: str, store: ObjectStore) -> Path:
    """Write the settings of the page, with the addresses and keys of these servers, and return the file."""
    (shown,) = TRINO_BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    settings = dict(line.split("=", 1) for line in str(shown).splitlines())
    settings |= {
        "iceberg.jdbc-catalog.connection-url": f"jdbc:postgresql:{uri.partition(':')[2]}",
        "iceberg.jdbc-catalog.connection-user": "lake",
        "iceberg.jdbc-catalog.connection-password": PASSWORD,
        "iceberg.jdbc-catalog.default-warehouse-dir": f"s3://{BUCKET}/lake",
        "s3.region": REGION,
        "s3.endpoint": store.endpoint,
        "s3.path-style-access": "true",
        "s3.aws-access-key": store.access_key_id,
        "s3.aws-secret-key": store.secret_access_key,
    }
    path = folder / "lake.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return path


def run(*command: str | Path, **environment: str) -> None:
    """Run a command to its end, and say how long it took: a first run downloads jars for minutes."""
    begun, shown = time.monotonic(), " ".join(map(str, command))[:100]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        env={**os.environ, **environment},
        check=False,
    )
    print(f"{time.monotonic() - begun:.0f} s: {shown}", file=sys.stderr, flush=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def class_path(engine: Engine) -> str:
    """Return the jars of an engine: Maven takes ten seconds to find again what it has found before."""
    pom = engine.folder / "pom.xml"
    found = cache_folder() / f"{engine.name}-{sha256(pom.read_bytes()).hexdigest()[:16]}.jars"
    if not found.is_file() or not all(map(os.path.isfile, found.read_text("utf-8").split(os.pathsep))):
        found.parent.mkdir(parents=True, exist_ok=True)
        home = {} if engine.java_home is None else {"JAVA_HOME": engine.java_home}
        build = ("dependency:build-classpath", f"-Dmdep.outputFile={found}")
        run("mvn", "-q", "-B", "-f", pom, *build, MAVEN_OPTS=" ".join(SHORT_LIVED), **home)
    return found.read_text("utf-8")


def run_program(engine: Engine, memory: str, program: str, *arguments: str | Path) -> None:
    """Run a Java program of an engine's folder with its jars."""
    java = "java" if engine.java_home is None else Path(engine.java_home) / "bin" / "java"
    options = (f"-Xmx{memory}", *SHORT_LIVED, *engine.options, "-cp", class_path(engine))
    run(java, *options, engine.folder / program, *arguments)


def ask(engine: Engine, folder: Path, settings: Path, queries: list[str]) -> list[str]:
    """Return the rows of some queries, each a list as Java prints it."""
    rows = folder / "rows"
    run_program(engine, "1500m", "Query.java", settings, rows, *queries)
    return rows.read_text(encoding="utf-8").splitlines()


def questions(engine: Engine, tables: PublishedTables, pinned: int) -> Iterator[tuple[str, str]]:
    """Yield a part of a query, with its row: of each cut, of the pinned one by its tag and of the newest one.

    A part has a place for the number of its row.
    """
    name = f"lake.{tables.lake.pipeline}.accounts"
    query = f"SELECT {{}} AS n, count(*), sum(balance) FROM {name}"
    for state in tables.cuts():
        sums = "SELECT count(*), sum(balance) FROM accounts"
        count, total = tables.at(state.cut.cut).duckdb().sql(sums).fetchall()[0]
        row = f"{count}, {total}]"
        yield f"{query} {engine.at_snapshot.format(state.cut.tables['accounts'])}", row
        if state.cut.cut == pinned:
            yield f"{query} {engine.at_tag.format(f'cut_{pinned}')}", row
    yield query, row


def deleted_rows(tables: PublishedTables) -> int:
    """Return how many rows of the newest files a reader leaves out, by deletion vectors or position files."""
    table = tables.lake.table("accounts")
    snapshot = head(table) if table is not None else None
    return int((fact(snapshot, "total-position-deletes") if snapshot is not None else None) or 0)


def publish(folder: Path, bank: Simulator, uri: str, store: ObjectStore) -> dict[int, PublishedTables]:
    """Publish some cuts of tables of each format version, pin the second, and return the tables."""
    files = {version: write_defs(folder, version, bank.names(), uri, store) for version in VERSIONS}
    run(sys.executable, "-c", PUBLISH, str(CYCLES), *files.values())
    published = {
        version: open_tables(load_settings(defs).lake, f"bank{version}") for version, defs in files.items()
    }
    for tables in published.values():
        must_equal(True, deleted_rows(tables) > 0, "an update has left a deleted row")
    return published


def compare(
    engine: Engine, folder: Path, settings: Path, published: Mapping[int, PublishedTables], report: Report
) -> None:
    """Ask an engine, which is started once, about all cuts of each format version, and report the answers.

    The cuts of a version are one query: the engine plans it once, and Flink starts its cluster for each.
    """
    by_version = {version: list(questions(engine, tables, pinned=2)) for version, tables in published.items()}
    queries = [
        " UNION ALL ".join(part.format(number) for number, (part, _) in enumerate(parts)) + " ORDER BY n"
        for parts in by_version.values()
    ]
    answers = iter(ask(engine, folder, settings, queries))
    for version, parts in by_version.items():
        rows = [*islice(answers, len(parts))]
        expected = [f"[{number}, {row}" for number, (_, row) in enumerate(parts)]
        must_equal(expected, rows, f"{engine.name}, format version {version}")
        report.note(f"{engine.name}, format version {version}: equal answers", len(rows), "reads")
    must_equal([], [*answers], f"{engine.name}: further rows")


def main() -> None:
    """Read every cut, and report."""
    options = arguments(str(__doc__)).parse_args()
    report, folder = Report("engines", options), options.work / "engines"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        programs = postgresql_programs()
        assert programs is not None, "PostgreSQL is not installed"
        # Another user runs it, who cannot look into this folder.
        place = Path(stack.enter_context(TemporaryDirectory())) / "catalog"
        uri = stack.enter_context(postgresql(programs, place, PASSWORD))
        store = stack.enter_context(object_store(folder))
        bank = stack.enter_context(Simulator(BANK))
        published = publish(folder, bank, uri, store)
        compare(FLINK, folder, write_flink_settings(folder, uri, store), published, report)
        if TRINO.java_home is not None:
            compare(TRINO, folder, write_trino_settings(folder, uri, store), published, report)


if __name__ == "__main__":
    main()
