"""The server of the page and the metrics: it answers GET, changes nothing, and has no login."""

import ipaddress
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from cdc_platform.dashboard.page import SPANS, PageOptions
from cdc_platform.dashboard.watch import Watch

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1", "[::1]")
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
HEADERS: Final = {
    # The page has neither scripts nor anything from elsewhere, and nothing may put some into it.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def build_app(watch: Watch, host: str, options: PageOptions) -> Starlette:
    """Return the application that serves the page at `/` and the metrics at `/metrics`.

    On loopback only requests to names of loopback are answered: another page in the browser could else have a
    name of its own resolved to this machine, and read the answer (DNS rebinding).
    """

    def page(request: Request) -> Response:
        chosen = _hours(request, options.hours)
        return HTMLResponse(
            watch.page(PageOptions(chosen, options.refresh_s, options.dagster_url)), headers=HEADERS
        )

    def metrics(_request: Request) -> Response:
        return PlainTextResponse(watch.metrics(), headers=HEADERS, media_type=METRICS_TYPE)

    names = [host, *LOOPBACK_NAMES] if is_loopback(host) else ["*"]
    return Starlette(
        routes=[Route("/", page, methods=["GET"]), Route("/metrics", metrics, methods=["GET"])],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False)],
    )


def _hours(request: Request, default: float) -> float:
    """Return the hours that a request asks for: one of those that the page offers."""
    offered = {f"{hours:.0f}": hours for hours in SPANS.values()}
    return offered.get(request.query_params.get("hours", ""), default)
