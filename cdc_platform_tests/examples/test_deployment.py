"""The files of examples/deployment, as far as they can be checked without Docker."""

import os
import re
import runpy
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from dagster import DagsterInstance

from cdc_platform.commands.servers.dashboard import DAGSTER_URL, PORT
from cdc_platform.components.loading import load_settings
from cdc_platform.metadata import DASHBOARD_URL
from cdc_platform.spark.launch.config import spark_config
from cdc_platform_tests.servers.object_store import is_installed, object_store
from cdc_platform_tests.servers.postgresql import SUPERUSER, Cluster
from cdc_platform_tests.support.debezium.databases import connect, database

FOLDER: Final = Path(__file__).parents[2] / "examples" / "deployment"
HELM_VALUES: Final = Path(__file__).with_name("helm_values.json")
PIPELINE: Final = FOLDER / "pipeline.yaml"
IN_TEMPLATE: Final = re.compile(r"\benv\.(\w+)")
IN_COMPOSE: Final = re.compile(r"\$\{(\w+)")
YAML_RULES: Final = """
extends: default
rules: {line-length: {max: 120}, document-start: disable, comments: {min-spaces-from-content: 1}}
"""


def run(*command: str) -> str:
    """Return what a linter finds in the folder's files."""
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The services, volumes and configurations of the compose file, with what they share filled in."""
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize(
    "command",
    [
        ("hadolint", "Dockerfile"),
        ("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"),
        ("check-jsonschema", "--schemafile", str(HELM_VALUES), "values.yaml"),
        ("yamllint", "--strict", "-d", YAML_RULES, "."),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_linters_find_nothing(command: tuple[str, ...]) -> None:
    """Dockerfile, compose file, Helm values and all YAML are as their formats want them."""
    assert run(*command) == ""


def mounted(services: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the services mount, as paths or names of volumes."""
    for service in services.values():
        yield from (volume.partition(":")[0] for volume in service.get("volumes", ()))


def test_the_compose_file_names_what_there_is(compose: dict[str, Any]) -> None:
    """Services, volumes, files and variables that it names exist."""
    services = compose["services"]
    dependencies = {name for service in services.values() for name in service.get("depends_on", ())}
    assert set() == dependencies - services.keys()
    for source in mounted(services):
        assert source in compose["volumes"] or (source.startswith(".") and (FOLDER / source).exists())
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    variables = re.findall(r"^(\w+)=", (FOLDER / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(variables) == set(IN_COMPOSE.findall(text))


def test_containers_have_the_variables_of_the_pipeline(compose: dict[str, Any]) -> None:
    """Each container that loads the pipeline gets the variables that its file takes values from."""
    names = set(IN_TEMPLATE.findall(PIPELINE.read_text(encoding="utf-8")))
    for name in ("code", "spark", "webserver", "dashboard", "daemon", "bucket"):
        assert names <= compose["services"][name]["environment"].keys()


def test_a_new_container_has_the_host_of_the_one_before(compose: dict[str, Any]) -> None:
    """A run that ended with its container would count as one of another machine, which may go on for ever."""
    assert compose["services"]["code"]["hostname"] == "code"


def test_only_this_machine_reaches_the_pages(compose: dict[str, Any]) -> None:
    """Neither UI has a login, so both are published on loopback, where the other one links to them."""
    services = compose["services"]
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {
        "webserver": ["127.0.0.1:3000:3000"],
        "dashboard": [f"127.0.0.1:{PORT}:{PORT}"],
    }
    linked = services["dashboard"]["environment"]
    assert (linked[DAGSTER_URL], linked[DASHBOARD_URL]) == (
        "http://127.0.0.1:3000",
        f"http://127.0.0.1:{PORT}",
    )


def test_the_pipeline_loads_and_the_image_has_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline's file is taken, and the image is built with the packages that its lake needs."""
    for name in IN_TEMPLATE.findall(PIPELINE.read_text(encoding="utf-8")):
        monkeypatch.setenv(name, "value")
    settings = load_settings(PIPELINE)
    expected = spark_config(replace(settings.spark, remote=None), settings.lake)["spark.jars.packages"]
    assert "iceberg-aws-bundle" in expected
    program = runpy.run_path(str(FOLDER / "fetch_packages.py"))
    assert (
        expected
        == program["spark_config"](program["SparkSettings"](), program["LAKE"])["spark.jars.packages"]
    )


@pytest.mark.integration
def test_the_bucket_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An S3 server gets the bucket, and keeps it when the program runs again."""
    if not is_installed() and os.environ.get("CI") != "true":
        pytest.skip("Not installed: the S3 server, moto")
    with object_store(tmp_path) as store:
        monkeypatch.setenv("LAKE_ACCESS_KEY_ID", store.access_key_id)
        monkeypatch.setenv("LAKE_SECRET_ACCESS_KEY", store.secret_access_key)
        make_bucket = runpy.run_path(str(FOLDER / "make_bucket.py"))["make_bucket"]
        for _ in range(2):
            make_bucket(store.endpoint, "lake")
            assert store.object_keys("lake") == []


@pytest.mark.integration
def test_dagster_keeps_its_history_in_postgresql(
    logical_server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster takes its file, and makes its tables in the database."""
    monkeypatch.setenv("POSTGRES_PASSWORD", "value")
    with database(logical_server, "dagster") as name:
        text = (FOLDER / "dagster.yaml").read_text(encoding="utf-8")
        for old, new in (
            ("hostname: postgres", "hostname: 127.0.0.1"),
            ("username: dagster", f"username: {SUPERUSER}"),
            ("port: 5432", f"port: {logical_server.port}"),
        ):
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "dagster.yaml").write_text(text, encoding="utf-8")
        with DagsterInstance.from_config(str(tmp_path)) as instance:
            assert (
                instance.get_runs_count(),
                type(instance.run_launcher).__name__,
            ) == (0, "DefaultRunLauncher")
        with closing(connect(logical_server, name)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM runs")
            assert cursor.fetchall() == [(0,)]
