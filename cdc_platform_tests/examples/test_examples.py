"""The examples: their files are what they are said to be, and what comes out is what their pages say."""

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import dagster as dg
import duckdb
import fastavro
import polars as pl
import pyarrow as pa
import pytest
import yaml

from cdc_platform.commands import pipelines as command_pipelines
from cdc_platform.commands.operating import sync
from cdc_platform.commands.reading import cuts
from cdc_platform.components.loading import find_pipelines, load_each
from cdc_platform.downstream.cut_io_manager import CutIOManager
from cdc_platform.errors import SettingError, TableNotFound
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.model.schema.table_options import ORDERING_KEY
from cdc_platform.pipeline.opened.pipeline import Pipeline, open_pipeline
from cdc_platform.read import open_tables
from cdc_platform.sources.debezium.settings.connector import DEFAULT_PLACEHOLDER
from cdc_platform_tests.commands.invoking import run
from cdc_platform_tests.docs.code_blocks import Block
from cdc_platform_tests.docs.shown_commands import OF_EXAMPLES, run_commands
from cdc_platform_tests.examples import article, shop
from cdc_platform_tests.support.pipelines import log_rows, quarantined_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
ON_TOP: Final = EXAMPLES / "on_top"
WORKFLOW: Final = ON_TOP / ".github" / "workflows" / "on_top.yml"
OMIT, VETO, ENRICH = "article_omit", "article_veto", "article_enrich"


def content_of(path: Path, data: bytes) -> Any:
    """Return the content of a file of a stream, with any compression."""
    return list(fastavro.reader(BytesIO(data))) if path.suffix == ".avro" else gzip.decompress(data)


@pytest.mark.parametrize("file", shop.FILES, ids=lambda file: file.number)
def test_the_files_of_the_shop_are_those_of_the_program(file: shop.ExampleFile) -> None:
    """The files of the repository are those that the program writes."""
    written = (shop.FOLDER / file.path).read_bytes()
    assert content_of(file.path, shop.to_bytes(file)) == content_of(file.path, written)


def test_no_other_files_are_there() -> None:
    """A file that was renamed does not stay behind."""
    paths = {path.relative_to(shop.FOLDER) for path in shop.FOLDER.rglob("*") if path.is_file()}
    assert {file.path for file in shop.FILES} == paths


def test_the_events_of_the_article_are_marked() -> None:
    """The engine has sent the marker in plain updates and in the second half of a key change."""
    values = [json.loads(line)["value"] for line in _lines(article.FOLDER)]
    rows = [(value["op"], value["after"]) for value in values if value and value.get("after")]
    marked = [(op, row["id"]) for op, row in rows if row["biography"] == DEFAULT_PLACEHOLDER]
    assert marked == [("u", 1004), ("c", 2003), ("u", 2003), ("u", 1004)]


def _lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        yield from path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("defs", find_pipelines(EXAMPLES), ids=lambda path: path.parent.name)
def test_what_an_example_writes_is_no_part_of_the_project(defs: Path) -> None:
    """The lakes of the examples lie in a folder that git does not look at."""
    for settings in load_each(defs):
        assert (ROOT / ".cdc_platform").resolve() in Path(settings.lake.path).resolve().parents


def test_only_one_pipeline_continues_without_end() -> None:
    """Of several pipelines in a file, one is to be chosen where none ever ends."""
    code, _, errors = run("sync", EXAMPLES / "debezium" / "defs.yaml", "--continuous")
    assert code == 2
    assert "choose it with --name: article_omit, article_veto, article_enrich" in " ".join(errors.split())


@dataclass(frozen=True)
class Synced:
    """An example after `sync`: its file, and what the command printed."""

    defs: Path
    output: str
    errors: str

    def without_spaces(self) -> str:
        """Return the output with single spaces between its words."""
        return " ".join(self.output.split())


@pytest.fixture(scope="module")
def examples(
    spark: "SparkSession", session_lake: LakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Synced]]:
    """Both examples after `sync`, in the lake of the test run."""
    synced = {}
    with pytest.MonkeyPatch.context() as patch:
        # A process has one session, and the tests share it.
        for module in (sync, cuts, command_pipelines):
            patch.setattr(module, "start_spark", lambda _settings: spark)
        for name in ("datastream", "debezium"):
            defs = tmp_path_factory.mktemp(name) / "defs.yaml"
            _write_copy(EXAMPLES / name / "defs.yaml", defs, session_lake.path)
            code, output, errors = run("sync", defs, "--until-caught-up")
            assert code == 0, errors
            synced[name] = Synced(defs, output, errors)
        yield synced


@pytest.fixture(scope="module")
def pipelines(examples: dict[str, Synced]) -> dict[str, Pipeline]:
    """The pipelines of both examples."""
    chosen = (settings for example in examples.values() for settings in load_each(example.defs))
    return {settings.name: open_pipeline(settings) for settings in chosen}


def _write_copy(example: Path, copy: Path, lake: str) -> None:
    """Write the documents of an example with another lake; its source stays where it is."""
    documents = list(yaml.safe_load_all(example.read_text(encoding="utf-8")))
    for document in documents:
        source = document["attributes"]["source"]
        place = source if "path" in source else source["input"]["files"]
        place["path"] = str(example.parent / place["path"])
        document["attributes"]["lake"]["path"] = lake
    copy.write_text(yaml.safe_dump_all(documents), encoding="utf-8")


@pytest.mark.integration
def test_the_shop(pipelines: dict[str, Pipeline]) -> None:
    """Late, repeated and shuffled events produce the source's rows; a broken line is in quarantine."""
    pipeline = pipelines["shop"]
    customers = [list(_without_order(row).values()) for row in rows_of(pipeline, "customers")]
    assert [
        [1, "Ada", "ada@example.com", Decimal("75.25"), date(1985, 12, 10), "+49 30 1234567"],
        [2, "Ben", "ben@example.org", Decimal("0.00"), date(1991, 3, 2), None],
        [4, "Dora", "dora@example.com", Decimal("5.00"), date(2001, 1, 15), None],
    ] == customers
    orders = [(row["id"], row["total"], row["status"]) for row in rows_of(pipeline, "orders")]
    assert [
        (1001, Decimal("49.90"), "shipped"),
        (1003, Decimal("7.05"), "new"),
        (2002, Decimal("120.00"), "new"),
    ] == orders
    assert len(log_rows(pipeline)) == 15
    (record,) = quarantined_rows(pipeline)
    assert "The line is not JSON" in record["reason"]


@pytest.mark.integration
def test_quarantine_is_no_secret(examples: dict[str, Synced], tmp_path: Path) -> None:
    """`sync` counts records in each line and at its end; `check` warns of them, and fails where it is set."""
    shop_synced = examples["datastream"]
    assert "quarantine 1 new, 1 open" in shop_synced.without_spaces()
    assert "records of `shop` in quarantine: 1." in shop_synced.errors
    report = tmp_path / "checks.xml"
    code, output, _ = run("check", shop_synced.defs, "--junit", report)
    warned = [line for line in output.splitlines() if line.startswith("warn ")]
    assert (code, ["quarantine_empty" in line for line in warned].count(True)) == (0, 1), output
    (suite,) = ET.parse(report).getroot()  # noqa: S314  our own text
    assert suite.get("failures") == "0"
    strict = tmp_path / "defs.yaml"
    text = shop_synced.defs.read_text(encoding="utf-8")
    strict.write_text(text.replace("name: shop\n", "name: shop\n  fail_on_quarantine: true\n"), "utf-8")
    code, output, _ = run("check", strict, "--junit", report)
    failed = [line.split()[1] for line in output.splitlines() if line.startswith("FAILED")]
    assert (code, failed) == (1, ["quarantine_empty"])
    (suite,) = ET.parse(report).getroot()  # noqa: S314  our own text
    assert suite.get("failures") == "1"
    # Nothing stops: the pipeline continues, and its line still counts what is open.
    code, output, _ = run("sync", strict, "--cycles", "2")
    assert [code, output.count("(1 of 2)"), output.count("(2 of 2)"), output.count("0 new, 1 open")] == (
        [0, 1, 1, 2]
    )


@pytest.mark.integration
def test_every_pipeline_of_a_file_is_checked(examples: dict[str, Synced], tmp_path: Path) -> None:
    """`check` has a section and a suite for each, and `status` shows all of them."""
    defs, report = examples["debezium"].defs, tmp_path / "checks.xml"
    assert "quarantine" not in examples["debezium"].errors
    assert examples["debezium"].without_spaces().count("quarantine 0 new, 0 open") >= 3
    code, output, errors = run("check", defs, "--junit", report)
    assert code == 0, errors
    names = [line.split()[1] for line in output.splitlines() if line.startswith("pipeline ")]
    assert names == [OMIT, VETO, ENRICH]
    suites = ET.parse(report).getroot()  # noqa: S314  our own text
    assert [suite.get("name") for suite in suites] == [f"cdc-platform check {name}" for name in names]
    shown = json.loads(run("status", defs, "--json")[1])
    assert {item["pipeline"]: list(item["tables"]) for item in shown} == {
        name: ["customers"] for name in names
    }


def _without_order(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != ORDERING_KEY}


@pytest.mark.integration
@pytest.mark.parametrize("name", [OMIT, VETO, ENRICH])
def test_the_article(pipelines: dict[str, Pipeline], name: str) -> None:
    """Every strategy leaves whole rows, after a key change and within a transaction, too."""
    rows = rows_of(pipelines[name], "customers")
    shown = [(row["id"], row["first_name"], row["email"], _life(row["biography"])) for row in rows]
    assert shown == [
        (1001, "Sally", "sally.thomas@acme.com", None),
        (1002, "George", "gbailey@foobar.com", None),
        (1004, "Dana", "dana@noanswer.org", "Dana"),
        (2003, "Edward", "edward@walker.com", "Edward"),
    ]


def _life(biography: str | None) -> str | None:
    """Return the name of the person whose life a whole biography describes."""
    if biography is None:
        return None
    assert biography.count("Chapter") == 40
    return biography.split(" of the life of ")[1].split(",")[0]


@pytest.mark.integration
def test_the_log_is_completed_where_that_is_wanted(pipelines: dict[str, Pipeline]) -> None:
    """With `enrich` the log has whole rows only; else it says which values were not sent."""
    left_out = {
        name: [json.loads(row["keys"]) for row in log_rows(pipelines[name]) if row["unavailable_columns"]]
        for name in (OMIT, VETO, ENRICH)
    }
    assert left_out == {OMIT: [{"id": 1004}] * 2, VETO: [{"id": 1004}] * 2, ENRICH: []}
    for name in left_out:
        assert not [row for row in log_rows(pipelines[name]) if DEFAULT_PLACEHOLDER in str(row["new_values"])]


@pytest.fixture
def on_top(examples: dict[str, Synced], tmp_path: Path) -> Callable[..., None]:
    """Return what runs a command in the folder of the project on top; it writes to `tmp_path`."""
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ON_TOP / "src"), str(ROOT)]),
        "REPORTS": str(tmp_path / "reports"),
        "SHOP_DEFS": str(examples["datastream"].defs),
    }

    def run_there(*command: str) -> None:
        ended = subprocess.run(
            command, cwd=ON_TOP, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    return run_there


@pytest.mark.integration
def test_a_project_on_top(examples: dict[str, Synced], on_top: Callable[..., None], tmp_path: Path) -> None:
    """What its CI runs succeeds: definitions load, and the reports read all tables at one cut."""
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["test"]["steps"]
    commands = [step["run"].split() for step in steps if "run" in step]
    assert [command[0] for command in commands] == ["pip", "dg", "cdc-platform", "cdc-platform", "dg"]
    for command in commands:
        if command[0] == "dg":  # the others need an environment and a Spark of their own
            on_top(*command)
    rows = pl.read_parquet(tmp_path / "reports" / "spending.parquet").rows()
    assert rows == [
        (1, "Ada", 1, Decimal("49.90")),
        (2, "Ben", 1, Decimal("120.00")),
        (4, "Dora", 1, Decimal("7.05")),
    ]
    lines = (tmp_path / "reports" / "by_status.csv").read_text(encoding="utf-8").splitlines()
    assert lines == ["status,orders,total,customers", "new,2,127.05,2", "shipped,1,49.90,1"]
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        (run_of_reports,) = instance.get_runs()
    cut = open_tables(examples["datastream"].defs).at().cut
    assert run_of_reports.tags["cdc_platform/cut/shop"] == str(cut.cut)


def test_the_workflow_of_the_project_on_top_is_one() -> None:
    """GitHub's schema accepts the file."""
    command = ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.integration
def test_dbt_on_top(on_top: Callable[..., None], tmp_path: Path) -> None:
    """Dbt builds and tests its models on the tables of a cut."""
    if shutil.which(os.environ.get("DBT", "dbt")) is None and os.environ.get("CI") != "true":
        pytest.skip("dbt was not found; examples/on_top/README.md describes its installation")
    on_top("dg", "launch", "--job", "dbt")
    with duckdb.connect(str(tmp_path / "reports" / "warehouse.duckdb"), read_only=True) as warehouse:
        rows = warehouse.execute("FROM customer_spending ORDER BY customer_id").fetchall()
    assert rows == [
        (1, "Ada", 1, Decimal("49.90")),
        (2, "Ben", 1, Decimal("120.00")),
        (4, "Dora", 1, Decimal("7.05")),
    ]


def load_orders(defs: Path, key: str, annotation: object) -> object:
    """Return what an asset gets of a table that it takes with an annotation."""
    loaded: list[object] = []

    def orders_seen(orders: object) -> None:
        loaded.append(orders)

    orders_seen.__annotations__["orders"] = annotation
    ins = {"orders": dg.AssetIn(key.split("/"), input_manager_key="cut")}
    seen = dg.asset(ins=ins)(orders_seen)
    upstream = dg.AssetSpec(key.split("/"))
    dg.materialize([upstream, seen], resources={"cut": CutIOManager(defs=str(defs))}, selection=[seen])
    return loaded[0]


@pytest.mark.integration
def test_an_input_has_the_form_of_its_annotation(examples: dict[str, Synced]) -> None:
    """Arrow, Polars and DuckDB; anything else, or another form, is refused by its name."""
    defs = examples["datastream"].defs
    totals = [Decimal("7.05"), Decimal("49.90"), Decimal("120.00")]
    rows = load_orders(defs, "shop/orders", pa.Table)
    assert isinstance(rows, pa.Table)
    assert sorted(rows["total"].to_pylist()) == totals
    relation = load_orders(defs, "shop/orders", duckdb.DuckDBPyRelation)
    assert isinstance(relation, duckdb.DuckDBPyRelation)
    assert sorted(row[0] for row in relation.project("total").fetchall()) == totals
    with pytest.raises(TableNotFound, match="shop/carts"):
        load_orders(defs, "shop/carts", pa.Table)
    with pytest.raises(SettingError, match="orders"):
        load_orders(defs, "shop/orders", dict)


@pytest.mark.integration
@pytest.mark.parametrize("block", OF_EXAMPLES, ids=lambda block: block.place)
def test_commands_of_pages_run(
    examples: dict[str, Synced], block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command that a page shows on an example ends with 0, as it stands; 17 is a cut that there is."""
    for name, example in examples.items():
        place = tmp_path / "examples" / name / "defs.yaml"
        place.parent.mkdir(parents=True)
        shutil.copy(example.defs, place)
    shutil.copy(examples["datastream"].defs, tmp_path / "defs.yaml")
    monkeypatch.chdir(tmp_path)
    (record, *_) = json.loads(run("quarantine", "list", "defs.yaml", "--all", "--json")[1])
    names = {"RECORD": record["record"], "T": record["table"], "TEXT": "JSON", "N": str(record["cycle"])}
    run_commands(block, tmp_path, {"17": "1", **names})
