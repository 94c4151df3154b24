"""The routes of the book's server, for browsers on this machine."""

import re
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from .attention import PATH, AttentionEndpoint
from .changes import Changes

# Widgets look for the first; pages from files have neither.
HEAD = (
    f'<meta name="attention-endpoint" content="{PATH}">'
    '<script>new EventSource("/changes").onmessage = () => location.reload();</script>'
)
# Another site's name that leads to this machine must not reach the model.
HOSTS = ["127.0.0.1", "localhost"]


class Pages(StaticFiles):
    """The built files. Pages tell their widgets what this server has, and are loaded again after a build."""

    def file_response(self, full_path: Any, *arguments: Any, **options: Any) -> Response:
        path = Path(full_path)
        if path.suffix != ".html":
            return super().file_response(full_path, *arguments, **options)
        text = re.sub("</head>", lambda end: HEAD + end[0], path.read_text(), count=1)
        return HTMLResponse(text, headers={"Cache-Control": "no-store"})


def create_app(folder: Path, changes: Changes) -> Starlette:
    return Starlette(
        routes=[
            Route("/changes", changes.stream),
            Route(PATH, AttentionEndpoint()),
            Mount("/", Pages(directory=folder, html=True)),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
        lifespan=changes.watching,
    )
