"""Default limits of answers and batches, for Python and the command line."""

MAX_TOKENS = 1024  # of an answer without another limit
PREFILL_STEP = 512  # prompt tokens in one chunk

# Of `batch_generate` and `tiny-llm batch`, where a chunk delays the decode steps of other requests.
BATCH_SIZE = 5
BATCH_PREFILL_STEP = 128
BATCH_MAX_SEQ_LEN = 512

LLM_BATCH_SIZE = 8
