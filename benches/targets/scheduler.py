"""What `pdm bench scheduler` compares with, by number of pages: counts of runs without a model.

NANO_VLLM is nano-vllm's scheduler at bb823b3, run twice with the same counts. PLAIN is a simulation of a
plain scheduler with mixed steps: decodes first, then chunks in the order of arrival; the newest request is
preempted, no page is found again, and a start leaves a watermark of free pages for each running request.
"""

from __future__ import annotations

from typing import NamedTuple

from benches.cases.scheduler import Counts


class NanoVllm(NamedTuple):
    """A step is prefill or decode, never both."""

    prefill_steps: int
    prefill_tokens: int
    decode_steps: int
    decode_batch: float
    preemptions: int

    @property
    def steps(self) -> int:
        return self.prefill_steps + self.decode_steps


NANO_VLLM = {
    150: NanoVllm(210, 208_571, 4_234, 31.5, 182),
    200: NanoVllm(187, 211_752, 3_342, 40.0, 162),
    400: NanoVllm(138, 200_617, 1_969, 67.8, 136),
    2000: NanoVllm(9, 142_827, 1_023, 130.7, 0),
}
# Steps, prefill tokens and preemptions for watermarks of 0, 1/4, 1/2 and 1 page.
PLAIN = {
    150: ((4_245, 246_160, 174), (4_390, 148_382, 10), (4_630, 144_999, 4), (5_088, 142_827, 0)),
    200: ((3_345, 242_230, 163), (3_484, 148_023, 7), (3_658, 144_449, 2), (3_976, 142_827, 0)),
    400: ((1_969, 221_387, 131), (1_999, 149_313, 10), (2_045, 142_827, 0), (2_330, 142_827, 0)),
    2000: ((1_032, 142_827, 0),) * 4,
}
STEP_SECONDS = {8: 100e-6}  # plan and commit, by running requests


def misses(pages: int, ours: Counts) -> list[str]:
    """The columns in which nano-vllm is better, or equal although there is room below."""
    theirs = NANO_VLLM[pages]
    least = ours.prompt_tokens  # the workload's prompts have no common beginning
    found = []
    if ours.steps > theirs.steps:
        found.append("steps")
    if ours.prefill_tokens >= theirs.prefill_tokens and ours.prefill_tokens > least:
        found.append("prefill tokens")
    if ours.preemptions >= theirs.preemptions and ours.preemptions > 0:
        found.append("preemptions")
    return found
