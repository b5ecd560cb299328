"""The origin of Dagster runs: Dagster's queue only takes runs of a code location."""

from typing import Final

from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

ORIGIN: Final = RemoteJobOrigin(
    RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("cdc_platform"), "__repository__"), "bank_sync"
)
"""The job of a pipeline `bank`."""
