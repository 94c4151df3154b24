"""OpenVINO on the CPU: token ids in, logits out, with the KV cache as state of the compiled model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.contestants.sequence import greedy_backend
from benches.names import OPENVINO, Missing
from tiny_llm.loading import Checkpoint
from tiny_llm_tools.benchmark.backends import BenchBackend


def openvino(checkpoint: Checkpoint, threads: int) -> dict[str, BenchBackend]:
    """A model compiled for latency. All other options are OpenVINO's defaults.

    Among them are bfloat16 where the machine has it, activations rounded to 8 bits in groups of 32, and a KV
    cache of 8 bits. A prompt is one inference, as in OpenVINO GenAI.
    """
    try:
        import openvino as library

        from benches.contestants.openvino_model import openvino_model
    except ImportError as error:
        raise Missing('OpenVINO is not installed: pip install ".[openvino]"') from error
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    model = openvino_model(checkpoint.config, checkpoint.mlx_model)
    sequence = _Sequence(library.Core().compile_model(model, "CPU", options).create_infer_request())
    return {OPENVINO: greedy_backend(OPENVINO, sequence)}


class _Sequence:
    """One sequence in the state of an inference request."""

    def __init__(self, request: Any):
        self._request = request
        self._offset = 0

    def clear(self) -> None:
        self._request.reset_state()
        self._offset = 0

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """The logits after the last of these tokens."""
        end = self._offset + len(tokens)
        self._request.infer(
            {
                "input_ids": np.array([tokens], np.int64),
                "position_ids": np.arange(self._offset, end, dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )
        self._offset = end
        found: NDArray[np.float32] = self._request.get_output_tensor(0).data[0, -1]
        return found
