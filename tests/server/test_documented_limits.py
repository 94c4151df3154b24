"""The limits of the documentation are those of the server, and of the library."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiny_llm.sampling.ranges import MAX_BIASES, MAX_STOP_CHARS, MAX_STOPS
from tiny_llm.server.settings import Settings

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import running

DOCUMENT = Path(__file__).parents[2] / "docs/serving.md"
MIB = 2**20


def test_limits() -> None:
    text = DOCUMENT.read_text()
    section = text.partition("## Limits")[2].partition("## Options")[0]
    rows = [row.split("|")[1:3] for row in section.splitlines() if row.startswith("| ")]
    limits = {what.strip(): limit.strip() for what, limit in rows}
    each = Settings()
    expected = {
        "body": f"{each.max_body // MIB} MiB, within {each.body_timeout:g} s",
        "memory of all requests at a time": f"{each.request_memory // MIB} MiB",
        "header": f"{each.max_head // 2**10} KiB, within {each.head_timeout:g} s",
        "text of a prompt": f"{each.max_prompt_chars // MIB} Mi characters",
        "new grammars that are being compiled": f"{each.max_grammars}",
        "prompts that are being encoded": f"{each.max_prompts}",
        "`n` times the number of prompts": f"{each.max_choices}",
        "`logit_bias`, `stop`, `tools`": f"{MAX_BIASES} entries, {MAX_STOPS} strings of "
        f"{MAX_STOP_CHARS} characters, {each.max_tools}",
        "messages": f"{each.max_messages:,}",
        "connections": f"{each.max_connections}",
        "a client that does not read": f"{each.write_timeout:g} s",
    }
    for what, limit in expected.items():
        (found,) = (limits[name] for name in limits if name.startswith(what))
        assert found == limit or found.startswith((f"{limit},", f"{limit};")), what
    assert f"after the first signal, {each.drain_timeout:g} unless given" in text
    assert f"a comment line every {each.keep_alive_comment:g} s" in section


@pytest.mark.parametrize(
    ("most", "param", "field_of"),
    [
        (MAX_STOPS, "stop", lambda size: ["a"] * size),
        (MAX_STOP_CHARS, "stop", lambda size: "a" * size),
        (MAX_STOPS, "stop_token_ids", lambda size: [5] * size),
        (MAX_BIASES, "logit_bias", lambda size: {str(token): 1 for token in range(size)}),
    ],
)
def test_the_parameters_of_an_answer_have_the_limits_of_the_library(
    most: int, param: str, field_of: Callable[[int], Any]
) -> None:
    with running(FakeEngine()) as server:
        assert server.chat(**{param: field_of(most)}).status == 200
        refused = server.chat(**{param: field_of(most + 1)})
    assert (refused.status, refused.error["param"]) == (400, param)
    assert str(most) in refused.error["message"]
