"""The last results of a pipeline's checks, from Dagster's instance."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import dagster as dg
from dagster import DagsterInstance

from cdc_platform.errors import SettingError
from cdc_platform.model.base.names import CHECKED_AT

HOME: Final = "DAGSTER_HOME"


@dataclass(frozen=True)
class CheckFact:
    """The last result of one check.

    Args:
        name: name of the check.
        asset: key of the asset of the check.
        passed: whether it passed.
        is_warning: whether a failure only warns.
        at_s: when the check ran, in seconds since the epoch.
        summary: one sentence with the findings.
    """

    name: str
    asset: str
    passed: bool
    is_warning: bool
    at_s: float
    summary: str

    @property
    def has_failed(self) -> bool:
        """Whether the check failed and is more than a warning."""
        return not self.passed and not self.is_warning


@dataclass(frozen=True)
class CheckHistory:
    """Access to the check results of some pipelines; only a Dagster instance stores results.

    ``instance`` is None if no Dagster instance is configured.
    """

    instance: DagsterInstance | None = None
    keys: Mapping[str, Collection[dg.AssetCheckKey]] = field(default_factory=dict)

    def latest(self, pipeline: str) -> tuple[CheckFact, ...] | None:
        """Return the last result of each check that has one; None if no instance is configured.

        A running check still has its previous result.
        """
        if self.instance is None:
            return None
        storage = self.instance.event_log_storage
        records = storage.get_asset_check_summary_records(list(self.keys.get(pipeline, ())))
        completed = (record.last_completed_check_execution_record for record in records.values())
        facts = (_as_fact(record.event) for record in completed if record is not None)
        return tuple(
            sorted((fact for fact in facts if fact is not None), key=lambda fact: (fact.name, fact.asset))
        )


def open_check_history(definitions: Mapping[str, dg.Definitions]) -> CheckHistory:
    """Open the instance of DAGSTER_HOME for the results of the checks that pipelines define, by name.

    Raises:
        SettingError: DAGSTER_HOME is not a Dagster instance.
    """
    keys = {
        name: tuple(defined.resolve_asset_graph().asset_check_keys) for name, defined in definitions.items()
    }
    return CheckHistory(_find_instance(), keys)


def names_instance() -> bool:
    """Return whether a Dagster instance is configured."""
    return bool(os.environ.get(HOME))


def _find_instance() -> DagsterInstance | None:
    if not names_instance():
        return None
    try:
        return DagsterInstance.get()
    except dg.DagsterInvariantViolationError as error:
        raise SettingError(HOME, f"is not a Dagster instance: {error}") from error


def _as_fact(event: dg.EventLogEntry | None) -> CheckFact | None:
    dagster_event = event.dagster_event if event is not None else None
    if event is None or dagster_event is None:
        return None
    evaluation = dagster_event.asset_check_evaluation_data
    repeated = evaluation.metadata.get(CHECKED_AT)
    return CheckFact(
        name=evaluation.check_name,
        asset=evaluation.asset_key.to_user_string(),
        passed=evaluation.passed,
        is_warning=evaluation.severity is dg.AssetCheckSeverity.WARN,
        at_s=repeated.value if isinstance(repeated, dg.TimestampMetadataValue) else event.timestamp,
        summary=evaluation.description or "",
    )
