"""The alerts of the project on top."""

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import ClassVar

import dagster as dg
import pytest

from cdc_platform_tests.docs.code_blocks import ROOT


class Webhook(BaseHTTPRequestHandler):
    """Keeps the messages that it gets."""

    texts: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        """Take a message."""
        self.texts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The messages that a webhook of the example's alerts gets."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "on_top" / "src"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("ALERT_WEBHOOK", f"http://127.0.0.1:{server.server_port}/")
        Webhook.texts.clear()
        yield Webhook.texts
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_alert_for_each_check_that_begins_to_fail(
    webhook: list[str], tmp_path: Path, *, is_stored: bool
) -> None:
    """The webhook of the project on top hears of a failure once, and of its end; of warnings not at all."""
    failed_checks = import_module("on_top.defs.alerts").failed_checks
    storage = dg.DagsterInstance.local_temp(str(tmp_path)) if is_stored else dg.DagsterInstance.ephemeral()
    with storage as instance:
        context = dg.build_sensor_context(instance=instance)
        _report(instance, passed=False)  # before anyone listens
        failed_checks(context)
        for severity, passed in (("WARN", False), ("ERROR", False), ("ERROR", False), ("ERROR", True)):
            _report(instance, passed=passed, severity=dg.AssetCheckSeverity[severity])
            failed_checks(context)
    assert messages("fails", "holds again") == webhook


def test_results_of_a_run(webhook: list[str], tmp_path: Path) -> None:
    """A run that began before the last evaluation has results as well."""

    @dg.asset_check(asset=dg.AssetKey(["shop", "orders"]))
    def fresh() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, description="400 s behind")

    failed_checks = import_module("on_top.defs.alerts").failed_checks
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        context = dg.build_sensor_context(instance=instance)
        failed_checks(context)
        dg.Definitions(
            asset_checks=[fresh], jobs=[dg.define_asset_job("checks", dg.AssetSelection.all_asset_checks())]
        ).resolve_job_def("checks").execute_in_process(instance=instance)
        failed_checks(context)
    assert messages("fails") == webhook


def test_a_message_that_was_not_taken(
    webhook: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent again by the next evaluation, which has the cursor of the one before."""
    failed_checks = import_module("on_top.defs.alerts").failed_checks
    address = os.environ["ALERT_WEBHOOK"]
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        context = dg.build_sensor_context(instance=instance)
        failed_checks(context)
        _report(instance, passed=False)
        monkeypatch.setenv("ALERT_WEBHOOK", "http://127.0.0.1:9/")
        assert "did not take" in failed_checks(context).skip_message
        monkeypatch.setenv("ALERT_WEBHOOK", address)
        failed_checks(context)
        failed_checks(context)
    assert messages("fails") == webhook


def messages(*what: str) -> list[str]:
    """Return the messages of a check that fails or holds again."""
    return [f"shop/orders: fresh {text}. 400 s behind" for text in what]


def test_an_alert_for_a_run_that_fails(webhook: list[str]) -> None:
    """The webhook hears which run failed, of which job."""

    @dg.op
    def breaks() -> None:
        raise ValueError("no such table")

    @dg.job
    def shop_sync() -> None:
        breaks()

    with dg.DagsterInstance.ephemeral() as instance:
        run = shop_sync.execute_in_process(instance=instance, raise_on_error=False)
        context = dg.build_run_status_sensor_context(
            "failed_runs", run.get_run_failure_event(), instance, run.dagster_run
        )
        import_module("on_top.defs.alerts").failed_runs(context.for_run_failure())
    (message,) = webhook
    assert message.startswith(f"Run {run.run_id[:8]} of shop_sync failed. ")


def _report(
    instance: dg.DagsterInstance,
    *,
    passed: bool,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> None:
    evaluation = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(["shop", "orders"]),
        check_name="fresh",
        passed=passed,
        severity=severity,
        description="400 s behind",
        metadata={},
    )
    instance.report_runless_asset_event(evaluation)
