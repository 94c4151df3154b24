"""Default limits of answers and batches, for Python and the command line."""

from ..runtime.gpu import computes_on_gpu

MAX_TOKENS = 1024  # of an answer without another limit

# Of `batch_generate` and `tiny-llm batch`, where a chunk delays the decode steps of other requests.
BATCH_SIZE = 5
BATCH_PREFILL_STEP = 128
BATCH_MAX_SEQ_LEN = 512

LLM_BATCH_SIZE = 8


def prefill_chunk() -> int:
    """Prompt tokens in one chunk. A GPU needs more of them to be busy."""
    return 2048 if computes_on_gpu() else 512
