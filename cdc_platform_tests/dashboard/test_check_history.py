"""The last results of checks, as the status page reads them from Dagster's instance."""

import time

import dagster as dg

from cdc_platform.assets.check_results import all_check_keys, carry_over
from cdc_platform.assets.layers import PipelineAssets
from cdc_platform.dashboard.check_history import CheckHistory


def test_a_repeated_result_keeps_its_age() -> None:
    """A result that later runs repeat at their start has the time when its check ran."""
    assets = PipelineAssets("bank", ("accounts",))
    with dg.DagsterInstance.ephemeral() as instance:
        history = CheckHistory(instance, {"bank": all_check_keys(assets)})
        evaluation = dg.AssetCheckEvaluation(
            asset_key=assets.table("accounts"), check_name="fresh", passed=True, metadata={}
        )
        instance.report_runless_asset_event(evaluation)
        ran_before_s = time.time()
        for _run in range(2):
            for repeated in carry_over(dg.build_asset_context(instance=instance), assets):
                instance.report_runless_asset_event(repeated)
        (fact,) = history.latest("bank") or ()
    assert (fact.name, fact.passed) == ("fresh", True)
    assert fact.at_s <= ran_before_s
