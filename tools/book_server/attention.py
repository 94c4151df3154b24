"""POST /attention: the attention weights of a question, by the embedded model."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tiny_llm import LLM
from tiny_llm.checks.types import check_text
from tiny_llm.errors import ArgumentError, ArgumentTypeError
from tiny_llm.generation.messages import render_prompt
from tiny_llm.generation.text import encode_prompt
from tiny_llm_tools.profile import record_attention

PATH = "/attention"
LONGEST = 64  # tokens: a matrix with more rows has cells too small to point at
MAX_BODY = 16_384  # bytes
DIGITS = 4  # of a weight


class Refused(Exception):
    """A request that gets an answer with this status."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class PromptAttention:
    """The embedded model, loaded at the first prompt. MLX's arrays belong to the thread that made them."""

    @cached_property
    def _llm(self) -> LLM:
        return LLM("tiny", dtype="float32")

    def __call__(self, prompt: str) -> dict[str, Any]:
        """The tokens of a question in the chat template, and weights[layer][head][query], a list with one
        number for each visible key. No question, or one that is too long, is a ValueError."""
        check_text("attention", "prompt", prompt)
        if not prompt.strip():
            raise ArgumentError("attention", "prompt", "no question", "at least one word")
        model, tokenizer = self._llm.model, self._llm.tokenizer
        text = render_prompt("attention", "tiny", tokenizer, prompt, False)
        ids = encode_prompt("attention", [model], tokenizer, text)
        if len(ids) > LONGEST:
            got = f"{len(ids)} tokens, with those of the chat template"
            raise ArgumentError("attention", "prompt", got, f"at most {LONGEST}")
        layers = record_attention(model, ids)
        return {
            "tokens": [tokenizer.decode([token]) for token in ids],
            "weights": [[visible(head) for head in layer.weights.tolist()] for layer in layers],
        }


def visible(rows: list[list[float]]) -> list[list[float]]:
    """Rounded rows without the zeros of keys that the causal mask hides."""
    return [[round(weight, DIGITS) for weight in row[: query + 1]] for query, row in enumerate(rows)]


class AttentionEndpoint:
    """An ASGI app: one prompt at a time; the others wait. A failure is {"error": a sentence}."""

    def __init__(self) -> None:
        self._attention = PromptAttention()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="attention")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response: Response = JSONResponse(await self._answer(Request(scope, receive)))
        except Refused as refused:
            response = JSONResponse({"error": str(refused)}, refused.status)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> dict[str, Any]:
        prompt = await read_prompt(request)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._attention, prompt)
        except (ArgumentError, ArgumentTypeError) as error:
            raise Refused(400, str(error)) from error


async def read_prompt(request: Request) -> Any:
    """The field `prompt` of the JSON in the body."""
    if request.method != "POST":
        raise Refused(405, f"attention: method: got {request.method}, expected POST")
    # A form of another site cannot send this type without being asked first.
    kind = request.headers.get("content-type", "").split(";")[0].strip()
    if kind != "application/json":
        raise Refused(415, f"attention: content type: got {kind or 'none'}, expected application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise Refused(413, f"attention: body: got more than {MAX_BODY} bytes, expected a prompt")
    try:
        record = json.loads(body)
    except ValueError as error:
        raise Refused(400, "attention: body: got no JSON, expected an object with a prompt") from error
    if not (isinstance(record, dict) and set(record) == {"prompt"}):
        raise Refused(400, "attention: body: got other fields, expected an object with a prompt alone")
    return record["prompt"]
