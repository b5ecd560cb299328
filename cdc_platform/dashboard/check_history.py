"""The last results of a pipeline's checks, as Dagster's instance has them."""

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
        name: of the check.
        asset: key of the asset that it belongs to.
        passed: whether it passed.
        is_warning: whether a failure is only reported.
        at_s: when the check ran, in seconds since the epoch.
        summary: one sentence on what it found.
    """

    name: str
    asset: str
    passed: bool
    is_warning: bool
    at_s: float
    summary: str

    @property
    def has_failed(self) -> bool:
        """Whether it failed, and is more than a warning."""
        return not self.passed and not self.is_warning


@dataclass(frozen=True)
class CheckHistory:
    """Access to the results of the checks of some pipelines; results lie nowhere but in an instance.

    ``instance`` is None where no Dagster instance is named.
    """

    instance: DagsterInstance | None = None
    keys: Mapping[str, Collection[dg.AssetCheckKey]] = field(default_factory=dict)

    def latest(self, pipeline: str) -> tuple[CheckFact, ...] | None:
        """Return the last result of each check that has one, by name; None where no instance is named.

        A check that is running has its previous result.
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
    """Return the results in the instance of DAGSTER_HOME of the checks that pipelines define, by name.

    Raises:
        SettingError: DAGSTER_HOME names no instance.
    """
    keys = {name: _keys_of(defined) for name, defined in definitions.items()}
    return CheckHistory(_find_instance(), keys)


def names_instance() -> bool:
    """Return whether a Dagster instance is named."""
    return bool(os.environ.get(HOME))


def _find_instance() -> DagsterInstance | None:
    if not names_instance():
        return None
    try:
        return DagsterInstance.get()
    except dg.DagsterInvariantViolationError as error:
        raise SettingError(HOME, f"names no Dagster instance: {error}") from error


def _keys_of(definitions: dg.Definitions) -> Collection[dg.AssetCheckKey]:
    return tuple(definitions.resolve_asset_graph().asset_check_keys)


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
