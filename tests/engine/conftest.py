"""An engine on the embedded model in float32: batched answers equal those alone, token for token."""

import pytest

from tiny_llm import LLM
from tiny_llm.engine import Engine


@pytest.fixture(scope="session")
def llm():
    return LLM("tiny", dtype="float32")


@pytest.fixture(scope="session")
def cpu_llm():
    """For what only a CPU does: lists on an engine, pools by the memory of the machine."""
    return LLM("tiny", dtype="float32", device="cpu")


@pytest.fixture
def engine(llm):
    """Small steps and pages, so that prompts come in chunks, and pages are shared."""
    with Engine(llm, max_context=512, step_tokens=64, max_running=16, page_size=8) as engine:
        yield engine
