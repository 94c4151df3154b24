"""The exchanges of `test_wire`: requests of each interface, with many of their options together."""

from __future__ import annotations

import json
from typing import Any

from tiny_llm.errors import NumericError, QueueFull

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
REASONED = {"script": f"<think>Hm</think>A fox.{CALL}{CALL}"}
FOX = {"script": "A fox"}
FAILS: dict[str, Any] = {**FOX, "failure": NumericError(), "fail_after": 1}
FAILS_AT_ONCE = {**FOX, "failure": MemoryError(), "fail_after": 0}
FULL = {"refusal": QueueFull(8)}

USER = {"role": "user", "content": "Hi"}
CHAT: dict[str, Any] = {"messages": [USER]}
MESSAGE = {**CHAT, "max_tokens": 299}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "of a city", "parameters": PARAMETERS}
TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}
SAMPLED = {
    "temperature": 0.5, "top_p": 0.6, "top_k": 7, "min_p": 0.1, "seed": 8, "presence_penalty": 0.25,
    "frequency_penalty": 0.75, "repetition_penalty": 1.5, "logit_bias": {"300": 2}, "stop_token_ids": [301],
    "min_tokens": 1, "ignore_eos": True, "stop": ["x", "y"], "max_tokens": 3, "cache_salt": "salt",
}  # fmt: skip
OPTIONS = {
    "temperature": 0.5, "top_p": 0.6, "top_k": 7, "min_p": 0.1, "seed": 8, "presence_penalty": 0.25,
    "frequency_penalty": 0.75, "repeat_penalty": 1.5, "repeat_last_n": -1, "stop": ["x", "y"],
    "num_predict": 3,
}  # fmt: skip
SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "Weather?"}
ARGUMENTS = {"city": "Paris"}
CALLED = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)}}
TURNS = [
    SYSTEM,
    QUESTION,
    {"role": "assistant", "content": "I look.", "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "sun"}]},
]
ITEMS = [
    QUESTION,
    {"role": "assistant", "content": "I look."},
    {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "sun"},
]
USED = {"type": "tool_use", "id": "1", "name": "weather", "input": ARGUMENTS}
FAILED = {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": "no"}
BLOCKS = [
    QUESTION,
    {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USED]},
    {"role": "user", "content": [FAILED, {"type": "text", "text": "So?"}]},
]
OLLAMA_TURNS = [
    SYSTEM,
    QUESTION,
    {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": ARGUMENTS}}]},
    {"role": "tool", "tool_name": "weather", "content": "sun"},
]
SCORED = {"logprobs": True, "top_logprobs": 2}
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
LATEST = {"model": "fake:latest", "think": "low"}
NEUTRAL = {"repeat_penalty": 1, "repeat_last_n": 64, "typical_p": 1, "tfs_z": 1, "seed": 0, "num_gpu": 1}
# What some clients send, and others never.
ODD_TURNS = [
    {"role": "developer", "content": "Be brief."},
    {"role": "assistant", "content": None, "refusal": "No."},
    {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "So?"}]},
    {
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "Never."}],
        "tool_calls": [{"function": {"name": "weather", "arguments": ""}}],
    },
    {"role": "tool", "content": "sun"},
]
ODD_ITEMS = [
    QUESTION,
    {"type": "reasoning", "id": "1", "summary": []},
    {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
    {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "sun"}]},
]
ODD_BLOCKS = [
    SYSTEM,
    QUESTION,
    {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, USED]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]},
]

# For each file: the path, the body of a POST, and what the engine is set to.
Exchanges = list[tuple[str, Any, dict[str, Any]]]
FILES: dict[str, Exchanges] = {
    "chat": [
        ("/v1/chat/completions", {**CHAT, **fields}, engine)
        for fields, engine in (
            ({**TOOLS, "chat_template_kwargs": {"enable_thinking": True}}, REASONED),
            ({**SCORED, "n": 2}, {"script": ("A fox", "No")}),
            ({"stop": " fox"}, FOX),
            ({"max_tokens": 1}, FOX),
            ({**TOOLS, "max_tokens": 9}, {"script": f"A fox.{CALL}"}),
            ({**TOOLS, "stop": "Paris"}, {"script": f"A fox.{CALL}"}),
            (SAMPLED, FOX),
            ({"messages": TURNS, **TOOLS, "tool_choice": "none"}, FOX),
            ({**TOOLS, "tool_choice": "required", "parallel_tool_calls": False}, FOX),
            ({}, FAILS),
            ({}, FULL),
            (
                {**TOOLS, **SCORED, **THINKING, "n": 2, "seed": 0, "max_tokens": 40},
                {"script": (f"<think>Hm</think>A fox.{CALL}", "No")},
            ),
            ({"messages": ODD_TURNS}, FOX),
            ({**THINKING, "stop": "m"}, REASONED),
            ({}, FAILS_AT_ONCE),
        )
    ],
    "completions": [
        ("/v1/completions", {"prompt": "Once", **fields}, engine)
        for fields, engine in (
            ({"echo": True, "logprobs": 2, "max_tokens": 2, "n": 2}, {}),
            ({"prompt": ["A longer one", "Another one"], "max_tokens": 1}, {}),
            ({"echo": True, "logprobs": 0, "max_tokens": 0, "stop": "A"}, {"script": "A"}),
            (SAMPLED, FOX),
            ({}, FAILS),
            ({}, FULL),
            ({"prompt": [[300, 301], [302]], "n": 2, "best_of": 2, "logprobs": 1, "max_tokens": 1}, {}),
        )
    ],
    "responses": [
        ("/v1/responses", {"input": "Hi", **fields}, engine)
        for fields, engine in (
            ({"tools": [{"type": "function", **FUNCTION}], "reasoning": {"effort": "low"}}, REASONED),
            ({"top_logprobs": 1, "max_output_tokens": 1}, FOX),
            (
                {
                    "input": ITEMS,
                    "instructions": "Be brief.",
                    "temperature": 0.5,
                    "top_p": 0.6,
                    "seed": 8,
                    "max_output_tokens": 3,
                    "text": {"format": {"type": "json_object"}},
                    "user": "me",
                    "metadata": {"a": "b"},
                },
                FOX,
            ),
            ({}, FAILS),
            ({}, FULL),
            (
                {
                    "input": ODD_ITEMS,
                    "tools": [{"type": "function", **FUNCTION}],
                    "tool_choice": "none",
                    "parallel_tool_calls": False,
                    "reasoning": {"effort": "minimal"},
                    "include": ["message.output_text.logprobs"],
                },
                FOX,
            ),
            ({"reasoning": {"effort": "low"}, "top_logprobs": 1, "max_output_tokens": 6}, REASONED),
            ({}, FAILS_AT_ONCE),
        )
    ],
    "messages": [
        ("/v1/messages", {**MESSAGE, **fields}, engine)
        for fields, engine in (
            (
                {
                    "tools": [{"name": "weather", "input_schema": PARAMETERS}],
                    "thinking": {"type": "enabled", "budget_tokens": 1024},
                    "context_management": {},
                },
                REASONED,
            ),
            ({"stop_sequences": [" fox"]}, FOX),
            (
                {
                    "messages": BLOCKS,
                    "system": "Be brief.",
                    "temperature": 0.5,
                    "top_p": 0.6,
                    "top_k": 7,
                    "stop_sequences": ["x", "y"],
                    "max_tokens": 3,
                },
                FOX,
            ),
            ({"max_tokens": 1}, FOX),
            ({}, FAILS),
            ({}, FULL),
            (
                {
                    "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}],
                    "messages": ODD_BLOCKS,
                    "tools": [{"type": "custom", "name": "weather", "input_schema": PARAMETERS}],
                    "tool_choice": {"type": "none"},
                    "thinking": {"type": "adaptive"},
                },
                FOX,
            ),
            ({"stop_sequences": ["A"]}, FOX),
            ({"thinking": {"type": "adaptive"}, "stop_sequences": ["m"]}, REASONED),
            ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 6}, REASONED),
            ({}, FAILS_AT_ONCE),
        )
    ],
    "ollama": [
        ("/api/chat", {**CHAT, **TOOLS, "think": True}, REASONED),
        ("/api/chat", {**CHAT, **SCORED}, FOX),
        ("/api/chat", {"messages": OLLAMA_TURNS, "options": OPTIONS, "format": "json"}, FOX),
        ("/api/chat", {"messages": [USER, {"role": "assistant", "content": "A"}]}, FOX),
        ("/api/generate", {"prompt": "Hi", "system": "Be brief.", "options": OPTIONS}, FOX),
        ("/api/generate", {"prompt": "Hi", "raw": True, "options": OPTIONS}, FOX),
        ("/api/chat", CHAT, FAILS),
        ("/api/chat", CHAT, FULL),
        ("/api/chat", {**CHAT, "think": "high", "options": {"num_predict": 6}}, REASONED),
        ("/api/generate", {"prompt": "Hi", "think": True}, {"script": "<think>Hm</think>A fox"}),
        ("/api/generate", {"prompt": "Hi", "raw": True, "options": {"num_predict": 1}}, FOX),
        ("/api/generate", {}, {}),
        ("/api/chat", {**CHAT, **LATEST, "format": "", "options": NEUTRAL}, FOX),
        ("/api/chat", {"messages": OLLAMA_TURNS[:3]}, FOX),
        ("/api/tags", None, {}),
        ("/api/show", {"model": "fake"}, {}),
        ("/api/version", None, {}),
        ("/api/nothing", None, {}),
    ],
    "others": [
        ("/v1/models", None, {}),
        ("/v1/models/fake", None, {}),
        ("/v1/models/other", None, {}),
        ("/v1/nothing", None, {}),
        ("/v1/messages/nothing", None, {}),
        ("/v1/messages/count_tokens", CHAT, {}),
        ("/v1/responses/input_tokens", {"input": "Hi"}, {}),
        ("/tokenize", {"prompt": "A fox", "return_token_strs": True}, {}),
        ("/tokenize", {"prompt": "\N{WAVING HAND SIGN}", "return_token_strs": True}, {}),
        ("/tokenize", CHAT, {}),
        ("/detokenize", {"tokens": [300, 301]}, {}),
        ("/health", None, {}),
        ("/health", None, {"healthy": False}),
        ("/ready", None, {}),
    ],
}
STREAMS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/api/chat",
    "/api/generate",
)
