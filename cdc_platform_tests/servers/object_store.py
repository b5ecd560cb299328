"""An S3 server on loopback that knows one user and refuses everybody else."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from cdc_platform_tests.programs import ENVIRONMENT, free_port, start

MODULE: Final = "moto.server"
REGION: Final = "us-east-1"
BUCKET: Final = "lakes"
READY_S: Final = 300.0
FREE_REQUESTS: Final = 3
"""As many as `_make_user` needs; every later one is judged by its signature and its user's policy."""
JUDGING: Final = {**ENVIRONMENT, "INITIAL_NO_AUTH_ACTION_COUNT": str(FREE_REQUESTS)}
POLICY: Final = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
}


@dataclass(frozen=True)
class ObjectStore:
    """A server, and the credentials of its only user, who may do everything with all buckets."""

    endpoint: str
    access_key_id: str
    secret_access_key: str

    def object_keys(self, bucket: str = BUCKET) -> list[str]:
        """Return the keys of all objects of a bucket."""
        pages = self._client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def properties(self, endpoint: str | None = None) -> dict[str, str]:
        """Return a catalog's properties for the store, or for a proxy before it."""
        return {
            "s3.endpoint": endpoint or self.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
        }

    def _client(self, service: str) -> Any:
        return _client(service, self.endpoint, self.access_key_id, self.secret_access_key)


def is_installed() -> bool:
    """Return whether the server and what it needs are there."""
    return all(find_spec(name) is not None for name in ("moto", "flask", "flask_cors"))


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Run the server, with one bucket; what it says goes to a file of the folder."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    options = ("-H", "127.0.0.1", "-p", str(port))
    with start(folder / "object_store.log", MODULE, *options, environment=JUDGING) as program:
        program.wait_for("Running on", READY_S)
        access_key_id, secret_access_key = _make_user(endpoint)
        _client("s3", endpoint, access_key_id, secret_access_key).create_bucket(Bucket=BUCKET)
        yield ObjectStore(endpoint, access_key_id, secret_access_key)


def _make_user(endpoint: str) -> tuple[str, str]:
    iam = _client("iam", endpoint, "setup", "setup")
    iam.create_user(UserName="lake")
    iam.put_user_policy(UserName="lake", PolicyName="all", PolicyDocument=json.dumps(POLICY))
    key = iam.create_access_key(UserName="lake")["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def _client(service: str, endpoint: str, access_key_id: str, secret_access_key: str) -> Any:
    import boto3

    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=access_key_id,
        aws_secret_access_key=secret_access_key,
    )
