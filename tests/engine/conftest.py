"""An engine on the embedded model in float32: batched answers equal those alone, token for token."""

import pytest

from tiny_llm import LLM
from tiny_llm.cache.batching import BatchingKvCache
from tiny_llm.cache.stacked import Columns, StackedKvCache
from tiny_llm.engine import Engine

from ..support.generation.dense_loop import Observed


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


def batching(layers, *size):
    return [BatchingKvCache(*size) for _ in range(layers)]


def stacked(layers, *size):
    """As on a GPU."""
    columns = Columns()
    return [StackedKvCache(*size, columns) for _ in range(layers)]


@pytest.fixture(scope="module", params=[batching, stacked])
def dense_models(request):
    return Observed(request.param)


@pytest.fixture
def model(dense_models):
    """Without FlashAttention, with the batching caches of the CPU and of a GPU."""
    dense_models.forget()
    return dense_models
