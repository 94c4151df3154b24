"""Limits of tools: how many, and how large the schemas of their parameters."""

from __future__ import annotations

import re
from typing import Any

from tiny_llm.sampling.grammar.grammar import MAX_TEXT_BYTES

from ...support.serving import chat_models
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.grammars import follows
from ...support.serving.running import running
from .test_tools import TEMPLATE, TOOL


def described(number: int, size: int) -> dict[str, Any]:
    """A function with one argument, whose description has so many characters."""
    city = {"type": "string", "description": "x" * size}
    parameters = {"type": "object", "properties": {"city": city}}
    return {"type": "function", "function": {"name": f"f{number}", "parameters": parameters}}


def test_schemas_of_forced_calls_have_a_limit_each_and_a_generous_one_together() -> None:
    tokenizer = chat_models.tokenizer_with(TEMPLATE)
    with running(FakeEngine(tokenizer=tokenizer, context=2**20)) as server:

        def ask(count: int, size: int) -> Any:
            tools = [described(number, size) for number in range(count)]
            return server.chat(tools=tools, tool_choice="required")

        many = ask(40, 5000)  # 200 KB together
        assert many.status == 200
        grammar = server.engine.requests[-1].grammar
        call = '<tool_call>\n{"name": "f39", "arguments": {"city": "Rome"}}\n</tool_call>'
        assert follows(grammar, call)
        assert not follows(grammar, call.replace("f39", "f40"))
        one = ask(2, MAX_TEXT_BYTES)
        assert (one.status, one.error["param"], one.error["code"]) == (400, "tools", "invalid_grammar")
        sentence = r"tools: the parameters of f0: got \d+ bytes, expected at most 65536"
        assert re.fullmatch(sentence, one.error["message"])
        several = ask(17, 2**16 - 500)
        assert (several.status, several.error["code"]) == (400, "invalid_grammar")
        sentence = r"tools: the parameters of all functions together: got \d+ bytes, expected at most 1048576"
        assert re.fullmatch(sentence, several.error["message"])


def test_the_number_of_tools_has_a_limit() -> None:
    with running(FakeEngine(tokenizer=chat_models.tokenizer_with(TEMPLATE))) as server:
        assert server.chat(tools=[TOOL] * 10).status == 200
        answer = server.chat(tools=[TOOL] * 200)
        assert (answer.status, answer.error["message"]) == (400, "tools: expected at most 128")
