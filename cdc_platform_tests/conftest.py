"""Settings of the whole test run."""

import os

from hypothesis import HealthCheck, settings

from cdc_platform_tests.java_options import shorten_starts

shorten_starts()

pytest_plugins = [
    "cdc_platform_tests.emulator_fixtures",
    "cdc_platform_tests.server_fixtures",
    "cdc_platform_tests.spark_fixtures",
    # Uses the former, and so comes after it.
    "cdc_platform_tests.postgresql_fixtures",
]

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    # A busy machine is slow, not wrong.
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
