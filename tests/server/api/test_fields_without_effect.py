"""Fields of OpenAI and vLLM that are not honoured: accepted only where they would change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tiny_llm.server.api.decode import NOT_HONOURED

from ...support.serving.running import RunningServer

# Fields that have no effect here: values that change nothing, and one that would.
WITHOUT_EFFECT: dict[str, tuple[list[Any], Any]] = {
    "add_generation_prompt": ([True], 1), "background": ([False], True), "bad_words": ([[]], ["x"]),
    "continue_final_message": ([False], 0), "function_call": (["none", "auto"], {"name": "f"}),
    "functions": ([[]], [{"name": "f"}]), "length_penalty": ([1, 1.0], 2), "mcp_servers": ([[]], ["x"]),
    "modalities": ([["text"]], ["audio"]), "store": ([False], True), "suffix": ([""], "x"),
    "truncation": (["disabled"], "auto"), "use_beam_search": ([False], True),
    **{name: ([None], "x") for name in (
        "adapters", "allowed_token_ids", "audio", "chat_template", "context_management", "conversation",
        "documents", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "max_tool_calls",
        "mm_processor_kwargs", "prediction", "previous_response_id", "prompt_embeds", "prompt_logprobs",
        "truncate_prompt_tokens", "web_search_options",
    )},
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_field_that_has_no_effect_is_accepted_where_it_would_have_none(
    server: RunningServer, name: str
) -> None:
    neutral, other = WITHOUT_EFFECT[name]
    for value in neutral:
        assert server.complete(**{name: value}).status == 200
    refused = server.complete(**{name: other})
    assert (refused.status, refused.error["param"], refused.error["code"]) == (400, name, "unsupported_value")


def test_the_first_field_by_name_is_refused(server: RunningServer) -> None:
    refused = server.complete(**{name: other for name, (_, other) in WITHOUT_EFFECT.items()})
    assert refused.error["param"] == min(WITHOUT_EFFECT)


def test_every_field_without_effect_is_known() -> None:
    assert NOT_HONOURED.keys() == WITHOUT_EFFECT.keys()
