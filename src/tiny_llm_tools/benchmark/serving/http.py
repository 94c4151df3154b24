"""HTTP/1.1 over asyncio's streams: a request, the head of its response, and the body as it arrives.

The standard library has no client for asyncio. One connection serves one request.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tiny_llm.errors import ArgumentError

CONNECT_SECONDS = 5.0
MAX_LINE = 2**20  # bytes of the head of a response, or of a line in a chunked body
PIECE = 65536
CUT_OFF = "the connection was closed before the end of the answer"


class ProtocolError(Exception):
    """The server sent something other than a whole HTTP response; the text says what."""


def reason_of(error: OSError) -> str:
    """Why a connection failed. asyncio replaces the system's sentence; TLS and look-ups have their own."""
    if error.errno is None or isinstance(error, ssl.SSLError | socket.gaierror):
        return str(error.strerror or error)
    return os.strerror(error.errno)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: host and port as in its URL, and a path before those of its routes."""

    host: str
    port: int
    path: str = ""
    secure: bool = False

    @classmethod
    def of(cls, url: str) -> "Address":
        """From a base URL, with or without the `/v1` of its routes; ArgumentError for anything else."""
        error = ArgumentError("Address.of", "url", repr(url), "a URL such as http://127.0.0.1:8000")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # a port that is not a number, or brackets without an address
            raise error from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise error
        secure = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if secure else 80), path, secure)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}{self.path}"

    def resolved(self) -> str:
        """The numeric address: a look-up for each request would add to its latency. OSError if unknown.

        Of several, such as those of localhost, the first at which something listens, or the first of all.
        """
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        if len(found) > 1:
            for family, kind, _, _, address in found:
                with suppress(OSError), socket.socket(family, kind) as probe:
                    probe.settimeout(CONNECT_SECONDS)
                    probe.connect(address)
                    return str(address[0])
        return str(found[0][4][0])


@dataclass(slots=True)
class Response:
    """Status and headers (names in lower case), and the rest of the connection."""

    status: int
    headers: dict[str, str]
    reader: asyncio.StreamReader = field(repr=False)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body in pieces, each when it has arrived."""
        try:
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                async for piece in self._chunks():
                    yield piece
            else:
                async for piece in self._plain():
                    yield piece
        except asyncio.IncompleteReadError as error:
            raise ProtocolError(CUT_OFF) from error

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await _line(self.reader)
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise ProtocolError(f"a chunk begins with {line[:40]!r} instead of its size") from None
            if size < 0:
                raise ProtocolError(f"a chunk has the size {size}")
            if size == 0:
                while await _line(self.reader) != b"":
                    pass  # trailers
                return
            yield (await self.reader.readexactly(size + 2))[:-2]

    async def _plain(self) -> AsyncIterator[bytes]:
        """A body with a length, or one that ends with the connection."""
        length = self.headers.get("content-length")
        left = int(length) if length is not None and length.isdecimal() else None
        while left != 0:
            piece = await self.reader.read(PIECE if left is None else min(PIECE, left))
            if not piece and left is not None:
                raise ProtocolError(CUT_OFF)
            if not piece:
                return
            left = None if left is None else left - len(piece)
            yield piece


@dataclass(frozen=True, slots=True)
class Site:
    """A server as its clients see it: address, key, and the numeric address to connect to.

    The TLS context is made once: that takes longer than a request.
    """

    address: Address
    numeric: str
    key: str | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def at(cls, url: str, key: str | None = None) -> "Site":
        """ArgumentError for a bad URL, OSError for an unknown host."""
        address = Address.of(url)
        tls = ssl.create_default_context() if address.secure else None
        return cls(address, address.resolved(), key, tls)

    @asynccontextmanager
    async def request(self, method: str, route: str, body: bytes | None = None) -> AsyncIterator[Response]:
        """Send a request and read the head of the response. The connection is closed after the block."""
        name = self.address.host if self.tls else None
        reader, writer = await asyncio.open_connection(
            self.numeric, self.address.port, ssl=self.tls, server_hostname=name, limit=MAX_LINE
        )
        try:
            writer.write(self._head(method, route, body) + (body or b""))
            await writer.drain()
            yield await _read_head(reader)
        finally:
            writer.close()
            with suppress(OSError):  # of a server that closed it first
                await writer.wait_closed()

    def _head(self, method: str, route: str, body: bytes | None) -> bytes:
        address = self.address
        host = f"[{address.host}]" if ":" in address.host else address.host
        headers: Mapping[str, str] = {
            "Host": f"{host}:{address.port}",
            "Connection": "close",
            **({"Authorization": f"Bearer {self.key}"} if self.key else {}),
            **({"Content-Type": "application/json", "Content-Length": str(len(body))} if body else {}),
        }
        lines = [f"{method} {address.path}{route} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode()


async def _read_head(reader: asyncio.StreamReader) -> Response:
    try:
        while True:
            status_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            version, _, rest = status_line.partition(" ")
            if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
                raise ProtocolError(f"the answer begins with {status_line[:40]!r}, which is not HTTP")
            if not rest.startswith("1"):  # 100 and others announce a response
                pairs = (line.partition(":") for line in lines if line)
                headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
                return Response(int(rest[:3]), headers, reader)
    except asyncio.IncompleteReadError as error:
        raise ProtocolError("the connection was closed without an answer") from error
    except asyncio.LimitOverrunError as error:
        raise ProtocolError(f"the head of the answer is longer than {MAX_LINE} bytes") from error


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return (await reader.readuntil(b"\r\n"))[:-2]
    except asyncio.LimitOverrunError as error:
        raise ProtocolError(f"a line of the answer is longer than {MAX_LINE} bytes") from error
