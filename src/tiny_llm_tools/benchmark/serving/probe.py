"""Questions to a server before it is measured: is it there, which models has it, does it answer."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from .answer import Answer
from .client import Client, ServeRequest, message_of
from .http import ProtocolError, Site, reason_of

TIMEOUT = 10.0  # seconds


class ServerError(Exception):
    """A server that cannot be measured; the text says why."""


def status_of(site: Site, route: str) -> int | None:
    """The status of a GET; None if the server does not answer."""

    async def get() -> int:
        async with asyncio.timeout(TIMEOUT), site.request("GET", route) as response:
            await response.body()
            return response.status

    try:
        return asyncio.run(get())
    except (OSError, ProtocolError):
        return None


def list_models(site: Site) -> list[dict[str, Any]]:
    """The entries of /v1/models; none from a server that has no such route."""

    async def get() -> tuple[int, Any]:
        async with asyncio.timeout(TIMEOUT), site.request("GET", "/v1/models") as response:
            read = response.body() if response.status == 200 else message_of(response)
            return response.status, await read

    try:
        status, answer = asyncio.run(get())
    except TimeoutError:
        raise ServerError(f"no answer from {site.address} within {TIMEOUT:g} s") from None
    except (OSError, ProtocolError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise ServerError(f"cannot reach {site.address}: {reason}") from error
    if status in (401, 403):
        raise ServerError(f"{site.address} refuses the key (HTTP {status}): {answer}")
    if status in (404, 405):
        return []
    if status != 200:
        raise ServerError(f"{site.address}/v1/models: HTTP {status}: {answer}")
    try:
        return [{"id": str(card["id"]), **card} for card in json.loads(answer)["data"]]
    except (ValueError, KeyError, TypeError):
        raise ServerError(f"{site.address}/v1/models is not a list of models in OpenAI's form") from None


def warm_up(client: Client, requests: Sequence[ServeRequest]) -> None:
    """Answer requests one after the other, untimed. ServerError if one fails: the others would fail, too."""
    for request in requests:
        answer = Answer(request.prompt_tokens, client.clock())
        asyncio.run(client.ask(request, answer))
        if answer.failure is not None:
            raise ServerError(f"a first request failed, so nothing was measured: {answer.failure}")
