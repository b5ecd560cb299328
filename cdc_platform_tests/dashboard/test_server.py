"""What the server of the status page answers, and to whom."""

import http.client
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cdc_platform.dashboard.server import listen
from cdc_platform.errors import SettingError
from cdc_platform_tests import programs
from cdc_platform_tests.commands.invoking import begin, run
from cdc_platform_tests.support.watched_lakes import SECOND, WatchedLake
from cdc_platform_tests.yaml_files import bank_attributes, write_defs

WITHIN_S: Final = 120.0
START: Final = 1_800_000_000_000_000

INTERRUPTED: Final = """
import signal
import sys
from starlette.applications import Starlette
from cdc_platform.dashboard.server import listen, serve

class Dropped:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))

serve(Starlette(), listen("127.0.0.1", 0), Dropped)
"""
"""A server whose announcement ends with a callback that the signal interrupts."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a dashboard of a pipeline with two cycles, and of one that has never run."""
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "shop").mkdir()
    write_defs(folder / "shop", bank_attributes(name="shop"))
    lake = WatchedLake.begin(write_defs(folder), START)
    for second in (1, 2):
        lake.run_cycle(START + second * SECOND, {"accounts": 3})
    log = tmp_path_factory.mktemp("log") / "dashboard.log"
    environment = {name: value for name, value in programs.ENVIRONMENT.items() if name != "DAGSTER_HOME"}
    arguments = ("dashboard", folder / "defs.yaml", folder / "shop", "--port", "0")
    with programs.start(log, programs.COMMAND_LINE, *arguments, environment=environment) as program:
        program.wait_for("Status page: ", WITHIN_S)
        match = re.search(r"Status page: http://127.0.0.1:(\d+)", program.output())
        assert match is not None
        yield int(match[1])
        program.process.send_signal(signal.SIGTERM)
        assert program.ends_with(WITHIN_S) == 0, program.output()


def ask(
    port: int, path: str = "/", method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, str]:
    """Return status, headers and text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    connection.request(method, path, headers=dict(headers or {}))
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
@pytest.mark.parametrize("path", ["/", "/metrics"])
def test_a_foreign_name_gets_no_answer(port: int, host: str, path: str) -> None:
    """A page whose name resolves to this machine learns nothing: DNS rebinding ends at the Host header."""
    status, _, text = ask(port, path, headers={"Host": host})
    assert (status, text) == (400, "Invalid host header")


def test_names_of_loopback_are_answered(port: int) -> None:
    """A browser of this machine may use each name of loopback."""
    hosts = ("localhost", "127.0.0.1", "[::1]")
    statuses = {host: ask(port, headers={"Host": f"{host}:{port}"})[0] for host in hosts}
    assert dict.fromkeys(hosts, 200) == statuses


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_is_written(port: int, method: str) -> None:
    """The server reads only."""
    assert ask(port, method=method)[0] == 405


def test_the_page_takes_nothing_from_elsewhere(port: int) -> None:
    """The page runs no script, and says so to the browser."""
    _, headers, text = ask(port)
    assert str(headers["Content-Security-Policy"]).startswith("default-src 'none'; ")
    assert "<script" not in text
    assert re.findall(r"(?:src|href)=\"(?!#|data:|\?hours=|/metrics)[^\"]*\"", text) == []


def test_a_page_may_stay_as_it_is(port: int) -> None:
    """The page reloads itself, unless it is asked not to, and then keeps to that in its links."""
    reloaded, kept = (ask(port, path)[2] for path in ("/?hours=1", "/?hours=1&refresh=0"))
    assert tuple('http-equiv="refresh"' in text for text in (reloaded, kept)) == (True, False)
    links = [re.findall(r'href="(\?hours=[^"]*)"', text) for text in (reloaded, kept)]
    assert links == [
        ["?hours=24", "?hours=168", "?hours=1&amp;refresh=0"],
        ["?hours=24&amp;refresh=0", "?hours=168&amp;refresh=0", "?hours=1"],
    ]


def test_a_pipeline_that_never_ran_hides_no_other(port: int) -> None:
    """The page says what is wrong with one pipeline, and shows the others."""
    text = ask(port)[2]
    assert "holds no pipeline" in text or "There is no lake" in text
    assert "accounts" in text


def test_metrics(port: int) -> None:
    """Prometheus reads the numbers of each pipeline by the documented names, counters with their suffix."""
    status, headers, text = ask(port, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    expected = {
        ("cdc_platform_up", "bank"): 1,
        ("cdc_platform_up", "shop"): 0,
        ("cdc_platform_healthy", "shop"): 0,
        ("cdc_platform_cycles_total", "bank"): 2,
        ("cdc_platform_cuts_total", "bank"): 2,
        ("cdc_platform_changes_total", "bank"): 6,
        ("cdc_platform_table_rows", "accounts", "bank"): 6,
        ("cdc_platform_partitions", "bank", "live"): 1,
        ("cdc_platform_quarantined_records", "bank"): 0,
    }
    assert expected == {name: samples[name] for name in expected}
    assert {
        "cdc_platform_lag_seconds",
        "cdc_platform_watermark_lag_seconds",
        "cdc_platform_cycle_seconds",
    } < {name for name, *_ in samples}


def test_the_names_of_metrics_are_documented(port: int) -> None:
    """docs/metrics.md lists every metric."""
    page = (Path(__file__).parents[2] / "docs/metrics.md").read_text(encoding="utf-8")
    families = list(text_string_to_metric_families(ask(port, "/metrics")[2]))
    assert [family.name for family in families if f"`{family.name}" not in page] == []


def test_one_name_is_one_pipeline(tmp_path: Path) -> None:
    """Two files that declare pipelines of one name are refused, and both are named."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        begin(write_defs(tmp_path / folder))
    code, _, problems = run("dashboard", tmp_path, "--html", tmp_path / "status.html")
    assert code == 1
    assert f"{tmp_path}/two/defs.yaml: name` is already used by {tmp_path}/one/defs.yaml;" in problems
    assert not (tmp_path / "status.html").exists()


def test_a_folder_without_pipelines(tmp_path: Path) -> None:
    """A place that has no pipeline is named."""
    code, _, problems = run("dashboard", tmp_path)
    assert (code, str(tmp_path) in problems) == (1, True)


def test_a_port_that_is_taken(port: int, tmp_path: Path) -> None:
    """A port that is in use is named, with the setting to change."""
    code, _, problems = run("dashboard", begin(write_defs(tmp_path)), "--port", str(port))
    assert code == 1
    assert f"Setting `--port` is not available to listen on, 127.0.0.1:{port}" in problems


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_here(host: str) -> None:
    """An address of another machine is named with the setting to change."""
    with pytest.raises(SettingError, match=f"Setting `--host` is not available to listen on, {host}: "):
        listen(host, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_wherever_it_arrives(tmp_path: Path, number: signal.Signals) -> None:
    """A signal that Python handles in a callback, whose exceptions it ignores, is not forgotten."""
    command = [sys.executable, "-c", INTERRUPTED, str(int(number))]
    with programs.start_command(tmp_path / "log", command, programs.ENVIRONMENT) as server:
        assert server.ends_with(WITHIN_S) == 0, server.output()
        assert server.output() == ""
