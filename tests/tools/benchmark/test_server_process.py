"""Servers in processes of their own: begin, end, and the reason of an early end."""

from __future__ import annotations

import os
import sys

import pytest

from tiny_llm_tools.benchmark.serving.http import Site
from tiny_llm_tools.benchmark.serving.probe import ServerError, status_of
from tiny_llm_tools.benchmark.serving.process import ServerProcess

# A server whose only route is the one that it is given.
PROGRAM = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == sys.argv[1] else 404)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(f"Listening at http://127.0.0.1:{server.server_port}/v1.", flush=True)
server.serve_forever()
"""


def test_a_process_serves_during_the_block_and_has_ended_afterwards() -> None:
    with ServerProcess([sys.executable, "-c", PROGRAM, "/ready"]) as server:
        site = Site.at(server.url)
        assert (status_of(site, "/ready"), status_of(site, "/other")) == (200, 404)
        pid = server.pid
    assert status_of(site, "/ready") is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:9"])
def test_a_process_that_ends_early_is_an_error_with_its_last_line(url: str | None) -> None:
    program = "import sys; print('loading', file=sys.stderr); sys.exit('no such model')"
    with pytest.raises(ServerError, match=r"^the server ended with code 1: no such model$"):
        ServerProcess([sys.executable, "-c", program], url).__enter__()
