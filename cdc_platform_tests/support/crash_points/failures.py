"""Effects that fail while their process lives on: a full disk, a read-only folder, a refused commit."""

import random
import time
from collections.abc import Iterator, Sequence
from typing import Final

from cdc_platform.errors import (
    CdcError,
    CommitConflict,
    DiskFull,
    LakeAccessDenied,
    LakeUnreachable,
    SpoolUnusable,
)
from cdc_platform.lake.catalog.access import reaching
from cdc_platform.lake.state.lost_commits import revert_lost_commits
from cdc_platform_tests.support.crash_points.points import (
    POINTS,
    Death,
    Effect,
    EffectKind,
    Failure,
    Moment,
    describe,
)
from cdc_platform_tests.support.crash_points.runs import (
    PointNotReached,
    Recovery,
    Trial,
    reopened,
    wait_for_spark,
)
from cdc_platform_tests.support.crash_points.series import Extent, Series, run_places

ERRORS: Final[dict[Failure, tuple[type[CdcError], ...]]] = {
    Failure.FULL: (DiskFull,),
    Failure.READ_ONLY: (LakeAccessDenied, SpoolUnusable),
    Failure.BROKEN: (LakeUnreachable, SpoolUnusable),
    Failure.REFUSED: (CommitConflict,),
}
"""Errors by which a cycle may end."""


def list_effects(trial: Trial) -> tuple[Effect, ...]:
    """Return the effects of a whole run."""
    trial.lake.restore(trial.begun)
    with POINTS.counted(), reopened(trial.settings) as pipeline:
        trial.act(pipeline, trial.spark)
        return tuple(POINTS.effects)


def outlive(trial: Trial, failure: Failure, place: Death, *, has_checks: bool = True) -> Recovery:
    """Let an effect of a run fail, continue in the same process once all is well, and return the outcome.

    Raises:
        PointNotReached: the run had fewer effects.
        Exception: it ended before the effect by an error that nothing has injected.
    """
    trial.lake.restore(trial.begun)
    with reopened(trial.settings) as pipeline:
        run_error: Exception | None = None
        with POINTS.counted(place, failure=failure):
            try:
                with reaching(trial.settings.lake):
                    trial.act(pipeline, trial.spark)
            except Exception as error:  # noqa: BLE001  whatever it is, it is judged below
                run_error = error
            if not POINTS.has_failed:
                raise run_error or PointNotReached(f"{place} of {len(POINTS.effects)} effects")
            wait_for_spark(trial.spark)
        # What is there now must be deleted at the end.
        trial.lake.keep()
        begun = time.monotonic()
        revert_lost_commits(pipeline.lake)
        trial.recover(pipeline, trial.spark)
        recovery = trial.judge(time.monotonic() - begun, has_checks=has_checks)
    return Recovery(recovery.seconds, recovery.orphans, (*recovery.faults, *_misnamed(failure, run_error)))


def run_failures(trial: Trial, failure: Failure, extent: Extent, chance: random.Random) -> Series:
    """Let the effects of a run fail one after the other, and return the outcome."""
    effects = list_effects(trial)
    return run_places(
        trial,
        [*_places(effects, failure)],
        lambda place, has_checks: outlive(trial, failure, place, has_checks=has_checks),
        lambda place: (
            f"{failure.value} {place.moment.value} {describe(effects[place.number - 1], trial.lake.folder)}"
        ),
        extent,
        chance,
    )


def _places(effects: Sequence[Effect], failure: Failure) -> Iterator[Death]:
    """Yield where a run can fail: of a file, half remains where the system could begin it."""
    leaves_half = failure in {Failure.FULL, Failure.BROKEN}
    for effect in effects:
        if failure.meets(effect.kind):
            is_torn = leaves_half and effect.kind is EffectKind.WRITE
            yield Death(effect.number, Moment.WITHIN if is_torn else Moment.BEFORE)


def _misnamed(failure: Failure, error: Exception | None) -> Iterator[str]:
    """Yield a sentence if a run has ended by an error that does not say what has failed.

    It may also have gone on: a commit is tried more than once, and what is deleted late harms nobody.
    """
    if error is not None and not isinstance(error, ERRORS[failure]):
        error_names = " or ".join(kind.__name__ for kind in ERRORS[failure])
        yield f"the run ended by {type(error).__name__}, not {error_names}: {str(error)[:500]}"
