"""The readable schedules of FlashAttention, which several files test."""

import pytest

from tiny_llm.course import schedules


@pytest.fixture(params=["flash_attention_v1", "flash_attention_v2"])
def schedule(request):
    return getattr(schedules, request.param)
