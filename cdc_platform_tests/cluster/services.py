"""A catalog in PostgreSQL and a lake in an object store, for the tests of this folder."""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote

import pytest

from cdc_platform_tests.java_options import mapped_options
from cdc_platform_tests.servers.object_store import BUCKET, REGION, ObjectStore, is_installed, object_store
from cdc_platform_tests.servers.postgresql import postgresql, postgresql_programs

DEFS: Final = """\
type: cdc_platform.components.spanner.SpannerPipeline
attributes:
  name: bank
  source:
    project: {project}
    instance: {instance}
    database: {database}
    change_stream: {change_stream}
    emulator_host: {emulator_host}
  lake:
    path: s3://{bucket}/lake
    catalog:
      type: sql
      uri: {uri}
      user: lake
      password: "{{{{ env.LAKE_DB_PASSWORD }}}}"
      s3.endpoint: {endpoint}
      s3.region: {region}
      s3.access-key-id: "{{{{ env.LAKE_ACCESS_KEY_ID }}}}"
      s3.secret-access-key: "{{{{ env.LAKE_SECRET_ACCESS_KEY }}}}"
  spark:
    master: {master}
    driver_memory: 1g
    conf:
      spark.driver.host: 127.0.0.1
      spark.authenticate: "true"
      spark.authenticate.secret: "{{{{ env.CLUSTER_SECRET }}}}"
      spark.sql.shuffle.partitions: "2"
      spark.sql.codegen.wholeStage: "false"
      spark.sql.codegen.factoryMode: NO_CODEGEN
      spark.executor.memory: 1g
      spark.executor.extraJavaOptions: {java_options}
      spark.pyspark.python: {python}
      spark.eventLog.enabled: "true"
      spark.eventLog.compress: "false"
      spark.eventLog.dir: {events}
      spark.cores.max: "{cores}"
"""


@dataclass(frozen=True)
class Services:
    """A catalog and an object store, and what their only users and those of a Spark cluster have to show."""

    uri: str
    password: str
    store: ObjectStore
    cluster_secret: str

    def variables(self) -> dict[str, str]:
        """Return the environment variables that a pipeline's file takes the credentials from."""
        return {
            "LAKE_DB_PASSWORD": self.password,
            "LAKE_ACCESS_KEY_ID": self.store.access_key_id,
            "LAKE_SECRET_ACCESS_KEY": self.store.secret_access_key,
            "CLUSTER_SECRET": self.cluster_secret,
        }

    def leaks_in(self, text: str) -> set[str]:
        """Return the names of the secrets that a text holds, in any form that we give them."""
        hidden = self.variables()
        del hidden["LAKE_ACCESS_KEY_ID"]
        return {name for name, value in hidden.items() if value in text or quote(value, safe="") in text}


NO_SOURCE: Final = {
    **dict.fromkeys(("project", "instance", "database", "change_stream"), "none"),
    "emulator_host": "127.0.0.1:9",
}
LOCAL_SPARK: Final = {
    "master": "local[1]",
    "python": "python",
    "events": "events",
    "cores": "2",
}


@pytest.fixture(scope="package")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Both services, each of which refuses anyone without the right credentials."""
    programs = postgresql_programs()
    missing = [
        *([] if programs is not None else ["PostgreSQL"]),
        *([] if is_installed() else ["the S3 server, moto"]),
    ]
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"Not installed: {', '.join(missing)}")
    assert programs is not None
    # A password that an address cannot hold as it is.
    password = f"{secrets.token_hex(8)}@/: %é"
    # One with signs that mean something in Spark's files.
    cluster_secret = f"{secrets.token_hex(16)}=: \\#!"
    with ExitStack() as stack:
        # Another user runs it, who cannot look into the folders of a test.
        folder = Path(stack.enter_context(TemporaryDirectory())) / "cluster"
        uri = stack.enter_context(postgresql(programs, folder, password))
        store = stack.enter_context(object_store(tmp_path_factory.mktemp("store")))
        yield Services(uri, password, store, cluster_secret)


def write_defs(folder: Path, services: Services, **changes: str | Path) -> Path:
    """Write the pipeline's file into a folder."""
    store = {"bucket": BUCKET, "region": REGION, "endpoint": services.store.endpoint}
    spark = {**LOCAL_SPARK, "java_options": mapped_options()}
    values = {**NO_SOURCE, **spark, **store, "uri": services.uri, **changes}
    path = folder / "defs.yaml"
    path.write_text(DEFS.format(**values), encoding="utf-8")
    return path
