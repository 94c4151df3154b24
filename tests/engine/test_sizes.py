"""The default number of pages: from the longest request, the machine, and its control groups."""

import os
from functools import partial

import pytest

from tiny_llm import Sampling
from tiny_llm.cache.storage import PagedStorage
from tiny_llm.engine import Engine, EngineRequest, sizes
from tiny_llm.engine.sizes import DEFAULT_REQUESTS, DEFAULT_SHARE, PAGE_SIZE, batch_memory, machine_memory

pytestmark = pytest.mark.usefixtures("on_the_cpu")

WHOLE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def limit(system, path, memory):
    """A control group that grants so many bytes."""
    file = system / "sys/fs/cgroup" / path
    file.parent.mkdir(parents=True)
    file.write_text(f"{memory}\n")


def test_without_a_group_the_machine_counts_and_with_one_the_smaller(tmp_path):
    assert machine_memory(tmp_path) == WHOLE
    limit(tmp_path, "memory/memory.limit_in_bytes", 2**63 - 4096)  # what version 1 writes for no limit
    assert machine_memory(tmp_path) == WHOLE
    limit(tmp_path / "container", "memory.max", WHOLE // 3)
    assert machine_memory(tmp_path / "container") == WHOLE // 3


@pytest.mark.parametrize("path", ["memory.max", "memory/memory.limit_in_bytes"])
def test_the_limit_of_a_control_group_bounds_the_default_pool(cpu_llm, tmp_path, monkeypatch, path):
    """As in a container on a large machine: a fifth of the machine would be more than it may have."""
    page_bytes = sizes.pool_size(cpu_llm.model, PAGE_SIZE, PAGE_SIZE, None).page_bytes
    most = 6  # pages
    limit(tmp_path, path, int((most + 0.5) * page_bytes / DEFAULT_SHARE))
    monkeypatch.setattr(sizes, "machine_memory", partial(machine_memory, tmp_path))
    assert DEFAULT_REQUESTS * cpu_llm.context > most * PAGE_SIZE
    with Engine(cpu_llm) as engine:
        assert engine.pool.num_pages == most
        assert engine.context == most * PAGE_SIZE
    assert batch_memory(cpu_llm.model, [PAGE_SIZE] * 100, 100) == most * page_bytes
    # The longest request has to run, whatever is granted.
    assert batch_memory(cpu_llm.model, [9 * PAGE_SIZE], 1) == 9 * page_bytes


@pytest.mark.parametrize(("context", "pages"), [(40, 1), (64, 1), (65, 2)])
def test_the_default_pool_has_whole_pages_for_each_of_its_requests(cpu_llm, context, pages):
    pool = sizes.pool_size(cpu_llm.model, context, 64, None)
    assert pool.num_pages == DEFAULT_REQUESTS * pages


def test_pages_that_are_made_when_they_are_used_are_never_more_than_the_pool(cpu_llm, monkeypatch):
    """They grow by a factor, and the last time by what is left."""
    grown, grow = [], PagedStorage.grow

    def watched(storage, num_pages):
        grown.append(num_pages)
        grow(storage, num_pages)

    monkeypatch.setattr(PagedStorage, "grow", watched)
    page = sizes.pool_size(cpu_llm.model, 64, 8, None).page_bytes
    with Engine(cpu_llm, kv_memory=10 * page, max_context=80, page_size=8, grows=True) as engine:
        request = EngineRequest(prompt_ids=[5], sampling=Sampling(max_tokens=79, ignore_eos=True))
        *_, last = engine.submit(request)
    assert last.finish_reason == "length"
    assert grown == [2, 3, 4, 6, 9, 10]


def test_a_page_that_is_made_when_it_is_used_can_be_a_copy(cpu_llm):
    """Each answer to a prompt has its own copy of the last page, perhaps one that was not there before."""
    request = EngineRequest(prompt_ids=range(5, 15), n=3, sampling=Sampling(temp=1, seed=4, max_tokens=12))
    answers = []
    for grows in (False, True):
        with Engine(cpu_llm, max_context=80, page_size=8, grows=grows) as engine:
            tokens = [(event.choice, token) for event in engine.submit(request) for token in event.token_ids]
            answers.append(sorted(tokens, key=lambda each: each[0]))
    assert answers[0] == answers[1]


def test_pages_that_are_made_for_a_prompt_may_come_before_older_ones(cpu_llm):
    """The second prompt takes the two pages that were never used, then those of the first one."""
    page = sizes.pool_size(cpu_llm.model, 64, 8, None).page_bytes
    answers = []
    for grows in (False, True):
        with Engine(cpu_llm, kv_memory=4 * page, max_context=32, page_size=8, grows=grows) as engine:
            for prompt in (range(5, 21), range(30, 58)):
                request = EngineRequest(prompt_ids=prompt, sampling=Sampling(max_tokens=1), logprobs=3)
                (event,) = engine.submit(request)
            answers.append(event)
    assert answers[0] == answers[1]
    assert answers[0].finish_reason == "length"
