"""Names of contestants: columns of tables, and `name` in records. "ours" is tiny_llm."""

TINY_LLM, STEP, BATCH = "ours", "ours, model alone", "ours, 8 sequences"
NO_WINDOW = "ours, no window"
STANDARD, NAIVE_TILE = "standard", "naive tile"
NAIVE, V1, GQA = "naive", "V1", "GQA"
DENSE, GATHERED = "ours, dense", "gathered"
ALONE, PADDED, PADDED_LENGTHS = "each alone", "padded", "padded, lengths"
LLAMA_CPP, OPENVINO, MLX_LM = "llama.cpp", "OpenVINO", "mlx-lm"
FLASH, NO_FLASH = "flash attention", "no flash attention"
FORMS = {LLAMA_CPP: (FLASH, NO_FLASH)}  # of a peer that is measured in several: the fastest counts
MX_FAST, GROUPED, PYTORCH = "mx.fast", "grouped", "PyTorch"
MLX, MLX_FLOAT32 = "mlx", "mlx f32"
NANO_VLLM, PLAIN = "nano-vllm", "plain, simulated"
SEQUENCES = 8  # of BATCH
ONE_STREAM, LOOP, WHOLE_STEP = "ours, one stream", "stream_generate", "ours, whole step"
QUIET, NO_BUDGET, FIRST = "ours, no prompt", "ours, no budget", "ours, first request"
NO_LOOKUP, NO_DRAFT, FREE = "ours, no lookup", "ours, no draft model", "ours, no schema"

# The benchmarks of `pdm bench`, each a module beside this one; the first runs by default.
SUITES = (
    "model attention kernels layers peers serving "
    "primitives training prefill crossover decode packed flashtile "
    "schedules gpu scheduler scaling engine threads ranks"
).split()


class Missing(Exception):
    """A contestant cannot take part; the text says why."""
