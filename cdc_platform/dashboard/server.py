"""HTTP server of the page and the metrics: GET only, read-only, without login."""

import errno
import ipaddress
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from cdc_platform.dashboard.page import SPANS, PageOptions
from cdc_platform.dashboard.watch import Watch
from cdc_platform.errors import SettingError

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1", "[::1]")
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
HEADERS: Final = {
    # The page has no scripts and no foreign content, and the policy rejects injected ones.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def build_app(watch: Watch, host: str, options: PageOptions) -> Starlette:
    """Return the application that serves the page at `/` and the metrics at `/metrics`.

    On loopback it answers only requests to loopback names. Otherwise another page in the browser could
    resolve its own name to this machine and read the answer (DNS rebinding).
    """

    def page(request: Request) -> Response:
        is_kept = request.query_params.get("refresh") == "0"
        shown_options = replace(
            options,
            hours=_hours(request, options.hours),
            refresh_s=None if is_kept else options.refresh_s,
            is_served=True,
        )
        return HTMLResponse(watch.page(shown_options), headers=HEADERS)

    def metrics(_request: Request) -> Response:
        return PlainTextResponse(watch.metrics(), headers=HEADERS, media_type=METRICS_TYPE)

    names = [host, *LOOPBACK_NAMES] if is_loopback(host) else ["*"]
    return Starlette(
        routes=[Route("/", page, methods=["GET"]), Route("/metrics", metrics, methods=["GET"])],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False)],
    )


def _hours(request: Request, default: float) -> float:
    """Return the hours of a request, which must be one of the page's spans."""
    spans = {f"{hours:.0f}": hours for hours in SPANS.values()}
    return spans.get(request.query_params.get("hours", ""), default)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; no other server can use the same address.

    Raises:
        SettingError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        is_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        setting, address = ("--port", f"{host}:{port}") if is_port else ("--host", host)
        problem = f"is not available to listen on, {address}: {error.strerror or error}"
        raise SettingError(setting, problem) from error


def address_of(listener: socket.socket) -> str:
    """Return the address of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family is socket.AF_INET6 else f"http://{host}:{port}"


def serve(app: Starlette, listener: socket.socket, announce: Callable[[], object]) -> None:
    """Announce the pages and serve them until a signal, which may come as soon as they are announced."""
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    server = uvicorn.Server(config)
    # Before and after uvicorn handles signals, Python's own handler would raise KeyboardInterrupt, which
    # is forgotten if a callback of the garbage collector is running at that moment.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)
    with listener:
        announce()
        server.run(sockets=[listener])
