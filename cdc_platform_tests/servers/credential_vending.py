"""Temporary credentials that a REST catalog vends, and an object store that refuses expired ones."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3
from moto.server import ThreadedMotoServer

from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform_tests.servers.object_store import BUCKET, REGION
from cdc_platform_tests.servers.rest_catalog import rest_catalog
from cdc_platform_tests.support.proxies.http_proxy import Fault, HttpProxy, Request, http_proxy

LOGIN: Final = {"s3.access-key-id": "lake", "s3.secret-access-key": "secret"}


@dataclass
class Vending:
    """Adds credentials to the catalog's answers, each time others; the store takes those that live.

    Args:
        states_expiry: whether the catalog states when credentials expire.
        life_s: seconds until credentials expire, according to the catalog.
    """

    states_expiry: bool = True
    life_s: float = 3600.0
    vended: int = 0
    expired: int = 0
    """Number of credentials that were vended, and how many of those the store refuses, the oldest first."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def expire(self) -> None:
        """Let all credentials expire that were vended so far."""
        with self.lock:
            self.expired = self.vended

    def vend(self, request: Request, content: bytes) -> bytes:
        """Return the catalog's answer with credentials, if it is a table."""
        if "/tables" not in request.path or b'"metadata-location"' not in content:
            return content
        answer: dict[str, Any] = json.loads(content)
        answer["config"] = {**answer.get("config", {}), **self._credentials()}
        return json.dumps(answer).encode()

    def judge(self, request: Request) -> Fault | None:
        """Refuse a request to the store whose credentials have expired."""
        with self.lock:
            is_expired = int(request.token.rpartition("-")[2] or 0) <= self.expired
        return Fault.REFUSE_EXPIRED if is_expired else None

    def _credentials(self) -> dict[str, str]:
        with self.lock:
            self.vended += 1
            number = self.vended
        expiry = {"s3.session-token-expires-at-ms": str(int((time.time() + self.life_s) * 1000))}
        return {
            **LOGIN,
            "s3.session-token": f"token-{number}",
            **(expiry if self.states_expiry else {}),
        }


@dataclass(frozen=True)
class VendingLake:
    """A lake whose catalog vends credentials, and proxies before its catalog and its store."""

    settings: LakeSettings
    vending: Vending
    catalog: HttpProxy
    store: HttpProxy


@contextmanager
def vending_lake(folder: Path) -> Iterator[VendingLake]:
    """Run a REST catalog before an object store; only the catalog has the store's credentials."""
    vending, warehouse = Vending(), f"s3://{BUCKET}/lake"
    store = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    store.start()
    endpoint = "http://{}:{}".format(*store.get_host_and_port())
    place = {
        "warehouse": warehouse,
        "s3.endpoint": endpoint,
        "s3.path-style-access": "true",
        "client.region": REGION,
        **LOGIN,
    }
    key, secret = LOGIN.values()
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
    )
    client.create_bucket(Bucket=BUCKET)
    with (
        rest_catalog(folder, place) as uri,
        http_proxy(uri) as catalog,
        http_proxy(endpoint) as files,
    ):
        catalog.rewrite, files.choose = vending.vend, vending.judge
        properties = {
            "type": "rest",
            "uri": catalog.address,
            "warehouse": warehouse,
            "s3.endpoint": files.address,
            "s3.region": REGION,
        }
        yield VendingLake(LakeSettings(warehouse, properties), vending, catalog, files)
    store.stop()
