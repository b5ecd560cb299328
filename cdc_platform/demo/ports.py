"""Ports of this machine that the demo's programs listen on."""

import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_PROBE_S: Final = 1.0


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Return whether a program listens on a port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(_PROBE_S)
        return probe.connect_ex((LOOPBACK, port)) == 0
