"""A proxy before an HTTP service, an object store or a catalog: it forwards requests, or fails them."""

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, cycle
from typing import Any, Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "keep-alive", "expect", "content-length"})


class Fault(Enum):
    """What becomes of a request."""

    DELAY = "delay"
    """The answer comes late."""
    LATE = "late"
    """The answer comes when the client has asked again."""
    REFUSE_500 = "500"
    """The service is not reached; the answer is an internal error."""
    REFUSE_503 = "503"
    """The service is not reached; the answer asks the client to slow down."""
    REFUSE_429 = "429"
    """The service is not reached; the answer says that there were too many requests."""
    CUT = "cut"
    """The answer ends in its middle."""
    REFUSE_EXPIRED = "expired token"
    """The service is not reached; the answer says that the client's credentials have expired."""
    REFUSE_409 = "409"
    """The service is not reached; the answer says that another commit was first."""
    LOSE_ANSWER = "lost answer"
    """The service does what is asked; the client gets no answer."""
    ANSWER_409 = "409 after the write"
    """The service does what is asked; the answer is a conflict: a gateway has asked twice."""
    ANSWER_500 = "500 after the write"
    """The service does what is asked; the answer is an internal error."""
    ANSWER_504 = "504 after the write"
    """The service does what is asked; the answer is a gateway's timeout."""
    LOSE_WRITE = "lost write"
    """The service is not reached; the answer is a success."""


REFUSALS: Final[Mapping[Fault, int]] = {
    Fault.REFUSE_500: 500,
    Fault.REFUSE_503: 503,
    Fault.REFUSE_429: 429,
    Fault.REFUSE_EXPIRED: 400,
    Fault.REFUSE_409: 409,
    Fault.ANSWER_409: 409,
    Fault.ANSWER_500: 500,
    Fault.ANSWER_504: 504,
}
ETAG: Final = '"00000000000000000000000000000000"'
DONE: Final = f"<CompleteMultipartUploadResult><ETag>{ETAG}</ETag></CompleteMultipartUploadResult>".encode()
"""Answer of an object store to the end of an upload in parts, as Arrow makes all of its uploads."""
DELAYS_S: Final = {Fault.DELAY: 0.2, Fault.LATE: 4.0}
REASONS: Final = {
    400: "ExpiredToken",
    409: "CommitFailedException",
    429: "TooManyRequests",
    503: "SlowDown",
}
MESSAGES: Final = {400: "The provided token has expired."}
REACHING: Final = frozenset(
    {
        *(Fault.DELAY, Fault.LATE, Fault.CUT, Fault.LOSE_ANSWER),
        *(Fault.ANSWER_409, Fault.ANSWER_500, Fault.ANSWER_504),
    }
)
"""Faults with which the service gets the request."""


@dataclass(frozen=True)
class Request:
    """What a client asks for."""

    method: str
    path: str
    body: bytes = b""
    token: str = ""
    """The session token of the credentials with which a client of an object store signs it."""


Choice = Callable[[Request], Fault | None]
"""Says what becomes of a request; None means that it is forwarded."""


def seldom(seed: int, share: float, faults: tuple[Fault, ...], methods: str = "GET HEAD PUT POST") -> Choice:
    """Return a choice that fails a share of the requests, by dice; the same seed gives the same throws."""
    dice, lock = random.Random(seed), threading.Lock()  # noqa: S311  an input of tests, not a secret

    def choose(request: Request) -> Fault | None:
        with lock:
            throw, fault = dice.random(), dice.choice(faults)
        return fault if request.method in methods.split() and throw < share else None

    return choose


def every(number: int, path: str, faults: tuple[Fault, ...]) -> Choice:
    """Return a choice that fails every so-manieth POST to such a path, with one fault after the other."""
    turns, chosen, lock = count(1), cycle(faults), threading.Lock()

    def choose(request: Request) -> Fault | None:
        with lock:
            is_meant = request.method == "POST" and path in request.path
            return next(chosen) if is_meant and next(turns) % number == 0 else None

    return choose


def first(path_end: str, text: bytes, fault: Fault) -> Choice:
    """Return a choice that fails the first POST to such a path whose body has a text."""
    turns, lock = count(1), threading.Lock()

    def choose(request: Request) -> Fault | None:
        is_meant = request.method == "POST" and request.path.endswith(path_end) and text in request.body
        with lock:
            return fault if is_meant and next(turns) == 1 else None

    return choose


@dataclass
class HttpProxy:
    """Forwards to a service on loopback; ``counts`` has how often each fault was injected."""

    target: str
    choose: Choice = lambda _request: None
    rewrite: Callable[[Request, bytes], bytes] = lambda _request, content: content
    """Returns the answer that a client gets to a request that is forwarded, from that of the service."""
    meanwhile: Callable[[], object] = lambda: None
    """Runs between an answer of the service and the other one that the client gets."""
    counts: Counter[Fault] = field(default_factory=Counter)
    port: int = 0

    @property
    def address(self) -> str:
        """The address under which clients reach the service."""
        return f"http://127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    """Answers one client."""

    protocol_version = "HTTP/1.1"
    # Otherwise a body waits until the client acknowledges the headers, which it does 40 ms later.
    disable_nagle_algorithm = True
    proxy: HttpProxy

    def _handle(self) -> None:
        body = self._read_body()
        token = self.headers.get("X-Amz-Security-Token", "")
        request = Request(self.command, self.path, body, token)
        fault = self.proxy.choose(request)
        if fault is not None:
            self.proxy.counts[fault] += 1
        if fault is None or fault in REACHING:
            status, headers, content = self._forward(body)
            content = self.proxy.rewrite(request, content)
            if fault is not None and fault in REFUSALS:
                self.proxy.meanwhile()
                self._refuse(REFUSALS[fault])
            elif fault is Fault.LOSE_ANSWER:
                self.close_connection = True
            else:
                time.sleep(DELAYS_S.get(fault, 0.0) if fault is not None else 0.0)
                self._answer(status, headers, content, is_cut=fault is Fault.CUT)
        elif fault is Fault.LOSE_WRITE:
            self._answer(200, [("ETag", ETAG)], DONE if self.command == "POST" else b"", is_cut=False)
        else:
            self._refuse(REFUSALS[fault])

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815  as http.server calls them

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = urlsplit(self.proxy.target)
        # An answer that is rewritten must not be compressed.
        dropped = HOP_BY_HOP | {"accept-encoding"}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        headers["Content-Length"] = str(len(body))
        service = http.client.HTTPConnection(str(target.hostname), target.port, timeout=60)
        try:
            service.request(self.command, self.path, body, headers)
            answer = service.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            service.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, *, is_cut: bool) -> None:
        self.send_response_only(status)
        lengths = [value for name, value in headers if name.lower() == "content-length"]
        for name, value in headers:
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        # That of an answer to HEAD is the object's.
        self.send_header(
            "Content-Length", lengths[0] if self.command == "HEAD" and lengths else str(len(content))
        )
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if is_cut else content)
        self.close_connection = self.close_connection or is_cut

    def _refuse(self, status: int) -> None:
        """Answer as both an object store and a catalog would."""
        reason = REASONS.get(status, "InternalError")
        message = MESSAGES.get(status, "Injected by a test.")
        if "json" in self.headers.get("Content-Type", "") or "/v1/" in self.path:
            error = {"message": message, "type": reason, "code": status}
            content, kind = json.dumps({"error": error}).encode(), "application/json"
        else:
            text = f"<Error><Code>{escape(reason)}</Code><Message>{message}</Message></Error>"
            content, kind = text.encode(), "application/xml"
        self._answer(status, [("Content-Type", kind)], content, is_cut=False)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def handle(self) -> None:
        """Answer all requests of a connection; clients that go away are none of our business."""
        with suppress(ConnectionError):
            super().handle()


@contextmanager
def http_proxy(target: str) -> Iterator[HttpProxy]:
    """Run a proxy before a service; it fails nothing until it is given a choice."""
    proxy = HttpProxy(target)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy}))
    server.daemon_threads = True
    proxy.port = server.server_address[1]
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        serving.join(10)
