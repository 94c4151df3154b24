"""The files of the page, and the routes that send them. A request's path never reaches the file system."""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent
INDEX = "index.html"
PREFIX = "/page/"
CHAT = (
    "answer attach client composer context copy errors file log question run scroll sse stats version".split()
)
MARKDOWN = (
    "blocks code emphasis formula highlight inline links lists render stream symbols tables tex".split()
)
CONVERSATIONS = "archive conversation search shelf sidebar storage store transfer versions".split()
NAMES = (
    INDEX,
    "icon.svg",
    *(f"style/{name}.css" for name in "base layout forms sidebar chat markdown panel".split()),
    *(f"{name}.js" for name in "main dom drawers help notices".split()),
    *(f"markdown/{name}.js" for name in MARKDOWN),
    *(f"chat/{name}.js" for name in CHAT),
    *(f"conversations/{name}.js" for name in CONVERSATIONS),
    *(f"settings/{name}.js" for name in "fields form key models theme".split()),
    *(f"panel/{name}.js" for name in "parse rates sparkline panel".split()),
)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# What the page may load and do: its own files and this server, nothing else, and nothing inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "cache-control": "no-cache",  # kept, but asked for each time: a new version shows at once
    "content-security-policy": POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-dns-prefetch-control": "off",  # or the host of a link could be looked up without a click
}


class PageFile:
    """One file, read when the server starts."""

    def __init__(self, name: str):
        self.path = "/" if name == INDEX else PREFIX + name
        self._body = (FOLDER / name).read_bytes()
        self._type = TYPES[Path(name).suffix]
        self._headers = {**HEADERS, "etag": f'"{hashlib.sha256(self._body).hexdigest()[:32]}"'}

    @property
    def route(self) -> Route:
        return Route(self.path, self.answer)

    async def answer(self, request: Request) -> Response:
        """304 if the browser has this version."""
        known = request.headers.get("if-none-match", "")
        if self._headers["etag"] in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers=self._headers, media_type=self._type)


def page_files() -> list[PageFile]:
    return [PageFile(name) for name in NAMES]
