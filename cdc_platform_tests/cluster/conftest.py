"""Fixtures of this folder."""

from cdc_platform_tests.cluster.services import services

__all__ = ["services"]
