"""Errors of an unreachable lake are in words of its settings, and contain no secret."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from cdc_platform.cli import main
from cdc_platform.components.loading import load_settings
from cdc_platform.errors import CdcError, LakeAccessDenied, LakeUnreachable, SettingError
from cdc_platform.lake.catalog.lake import Lake
from cdc_platform_tests.cluster.services import Services, write_defs

pytestmark = pytest.mark.integration

NOBODY_LISTENS: Final = "127.0.0.1:9"


@dataclass(frozen=True)
class Case:
    """Mistake, and a part of the error that reports it."""

    error: type[CdcError]
    message: str
    variables: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, str] = field(default_factory=dict)


WRONG_ADDRESS: Final = f"postgresql+psycopg2://{NOBODY_LISTENS}/postgres"
CASES: Final = (
    Case(
        LakeAccessDenied,
        "`user` and `password` in the setting `lake.catalog`",
        variables={"LAKE_DB_PASSWORD": "wrong"},
    ),
    Case(LakeAccessDenied, "`s3.secret-access-key`", variables={"LAKE_SECRET_ACCESS_KEY": "wrong"}),
    Case(LakeAccessDenied, "`s3.access-key-id`", variables={"LAKE_ACCESS_KEY_ID": "wrong"}),
    Case(SettingError, "`lake.path` is in a bucket that does not exist", changes={"bucket": "nowhere"}),
    Case(LakeUnreachable, "`s3.endpoint`", changes={"endpoint": f"http://{NOBODY_LISTENS}"}),
    Case(LakeUnreachable, "`lake.catalog.uri`", changes={"uri": WRONG_ADDRESS}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.message)
def test_what_refuses_the_lake_is_named_by_its_setting(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    """A wrong password, key, bucket or address is an error that names the setting, and no secret."""
    for name, value in {**services.variables(), **case.variables}.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(write_defs(tmp_path, services, **case.changes))
    # No other test has made these tables.
    lake = Lake(settings.lake, f"refused_{secrets.token_hex(4)}")
    with pytest.raises(case.error) as caught:
        _ = lake.catalog
    assert case.message in str(caught.value)
    assert set() == services.leaks_in(str(caught.value))


def test_a_database_that_does_not_exist_is_an_error(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers, but has no such database."""
    for name, value in services.variables().items():
        monkeypatch.setenv(name, value)
    uri = services.uri.replace("/postgres", "/no_such_database")
    lake = Lake(load_settings(write_defs(tmp_path, services, uri=uri)).lake, "refused")
    with pytest.raises(SettingError, match="no_such_database") as caught:
        _ = lake.catalog
    assert caught.value.setting == "lake.catalog.uri"


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("LAKE_DB_PASSWORD", "lake.catalog.password"),
        ("LAKE_SECRET_ACCESS_KEY", "lake.catalog.s3.secret-access-key"),
    ],
)
def test_a_variable_that_is_not_set_is_an_error(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, setting: str
) -> None:
    """The error names the setting and the variable, and none of the others' values."""
    for name, value in services.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(variable)
    answer = CliRunner().invoke(main, ["status", str(write_defs(tmp_path, services))])
    assert answer.exit_code == 1
    assert f"{setting}` is empty, because the environment variable `{variable}` is not set" in answer.stderr
    assert set() == services.leaks_in(answer.output)
