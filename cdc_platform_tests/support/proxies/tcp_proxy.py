"""A proxy before a database: it forwards all bytes, and breaks connections where a test wants it to."""

import re
import socket
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Final

CHUNK_BYTES: Final = 65_536


class Break(Enum):
    """What becomes of the connection that a statement comes over."""

    BEFORE = "before"
    """It ends before the statement reaches the server: nothing has been done."""
    AFTER = "after"
    """It ends after the server has answered: all has been done, and the client does not know."""


Choice = Callable[[str], Break | None]
"""Gets what a client sends, and says how its connection breaks; None lets it continue."""


def break_at(turns: Container[int], pattern: str, how: Break) -> Choice:
    """Return a choice that breaks the connections of some statements of a pattern, counted from 1."""
    numbers, lock, expression = count(1), threading.Lock(), re.compile(pattern, re.DOTALL)

    def choose(text: str) -> Break | None:
        with lock:
            return how if expression.search(text) and next(numbers) in turns else None

    return choose


def act_at(turns: Container[int], pattern: str, act: Callable[[], object]) -> Choice:
    """Return a choice that does something before some statements of a pattern reach the server."""
    matches = break_at(turns, pattern, Break.BEFORE)

    def choose(text: str) -> None:
        if matches(text) is not None:
            act()

    return choose


@dataclass
class TcpProxy:
    """Listens on loopback, and counts the connections that it has broken."""

    target_port: int
    choose: Choice = lambda _text: None
    meanwhile: Callable[[], object] = lambda: None
    """Runs between a server's answer that is lost and the end of its connection."""
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    broken: int = 0

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        """Accept clients until the listener is closed."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target_port))
        except OSError:
            # It is starting again.
            client.close()
            return
        for side in (client, server):
            # Otherwise the second of two parts waits until the first one is acknowledged, for up to 40 ms.
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        is_lost = threading.Event()
        answers = threading.Thread(target=self._answer, args=(server, client, is_lost), daemon=True)
        answers.start()
        with closing(client), closing(server), suppress(OSError):
            while data := client.recv(CHUNK_BYTES):
                how = self.choose(data.decode("latin-1"))
                self.broken += how is not None
                if how is Break.BEFORE:
                    break
                if how is Break.AFTER:
                    is_lost.set()
                server.sendall(data)
                if how is Break.AFTER:
                    answers.join()
                    break
            _shut(server)

    def _answer(self, server: socket.socket, client: socket.socket, is_lost: threading.Event) -> None:
        """Forward what a server says, up to the first answer that is to be lost."""
        with suppress(OSError):
            while (data := server.recv(CHUNK_BYTES)) and not is_lost.is_set():
                client.sendall(data)
        if is_lost.is_set():
            self.meanwhile()
        _shut(client)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def tcp_proxy(target_port: int) -> Iterator[TcpProxy]:
    """Run a proxy before a port of loopback; it breaks nothing until it is given a choice."""
    proxy = TcpProxy(target_port)
    accepting = threading.Thread(target=proxy.serve, daemon=True)
    accepting.start()
    try:
        yield proxy
    finally:
        _shut(proxy.listener)
        proxy.listener.close()
        accepting.join(10)
