"""Commits that are derived again after another run has committed."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from pyiceberg.exceptions import CommitFailedException

from cdc_platform.errors import CommitConflict

TRIES: Final = 10
Result = TypeVar("Result")


def commit_again(commit: Callable[[], Result], conflict: CommitConflict) -> Result:
    """Return the result of a commit, which is derived from the present state at each try.

    Raises:
        CommitConflict: the given one; another run was first at each try.
    """
    for _ in range(TRIES):
        with suppress(CommitFailedException):
            return commit()
    raise conflict
