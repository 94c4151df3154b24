"""The layers of src in their order, and the folders that may be large: data for test_import_layers.py.

A layer may use the layers of the lines before. Layers that share a line may use each other in Python and in
GRAPH, without a cycle of modules or headers. Folders inside a layer belong to it.
"""

# src/tiny_llm. The fixed names of the course have a layer, too: basics.py to attention.py are ops, the model
# classes belong to course, generate.py and batch.py to generation.
PYTHON = [
    ["errors"],
    ["checks"],
    ["runtime"],
    ["ops", "basics", "embedding", "layer_norm", "positional_encoding", "quantize", "attention"],
    ["nn"],
    ["cache"],
    ["scheduler"],
    ["sampling", "sampler"],
    ["models"],
    ["loading"],
    ["distributed"],
    ["course", "qwen2_week1", "qwen2_week2", "qwen2_week3", "qwen3"],
    ["generation", "generate", "batch"],
    ["engine"],
    ["llm"],
    ["server"],
    ["chat"],
    ["cli"],
    ["deploy"],
]
# src/tiny_llm_tools, which may use all of src/tiny_llm; there, only the table of commands names it.
TOOLS = [["benchmark"], ["profile"], ["cli"]]
# Only the package's __init__ imports these: names for the course, without code of their own.
ENTRIES = {"kv_cache", "paged_kv_cache", "__init__", "__main__"}
# Imports inside functions, each with the reason; all others stand at the top of their module.
LATE_IMPORTS = {
    ("__init__", "runtime.version"): "reads pyproject.toml, which only __version__ needs",
    ("__main__", "cli"): "Ctrl-C during these imports ends the program without a traceback",
    ("cli.batch", "cli.batch_file.job"): "only a file of requests needs the packages of the extra `serve`",
    ("cli.batch_file.job", "cli.batch_file.cluster"): "only --ray needs those of the extra `ray`",
    ("cli.serve", "server.logs"): "only `serve` needs the packages of the extra `serve`",
    ("cli.serve", "server.run"): "only `serve` needs the packages of the extra `serve`",
    (
        "loading.find",
        "loading.download",
    ): "huggingface_hub is slow to import, and a cached model needs none of it",
    (
        "loading.tokenizer.chat_template",
        "loading.tokenizer.template_process",
    ): "jinja2 is slow to import, and only a trusted template needs it here",
    ("sampling.grammar.compiler", "sampling.grammar.check_process"): "llguidance is optional",
    ("sampling.grammar.state", "sampling.grammar.check_process"): "llguidance is optional",
}

# The readable loops of the course, and who runs them: its functions, and commands with --loader or mlx-lm.
LOOPS = {
    f"generation.{name}"
    for name in ("batching", "generation", "request", "result_builder", "speculative", "tokens")
} | {"generate", "batch"}
RUN_LOOPS = LOOPS | {"__init__", "cli.backends", "cli.mlx_lm_backend"}

# src/extensions/src; "." are the files at the top. GRAPH is what MLX sees: checks, primitives, gradients.
CPP = [
    ["core"],
    ["cpu/interface"],  # tables of function pointers, and the choice among instruction sets
    [".", "attention", "block", "rows"],
    ["cpu/runtime"],
    ["cpu/vec"],
    ["cpu/gemm"],
    ["cpu/rows"],
    ["cpu/quantized", "cpu/attention"],
    ["cpu/block"],
    ["cpu/isa"],
]
GRAPH = {".", "attention", "block", "rows"}
# These use none of GRAPH.
WITHOUT_GRAPH = {"core", "cpu/interface", "cpu/runtime", "cpu/vec", "cpu/isa"}
GPU = {"metal", "cuda", "no_gpu"}  # these include nothing of cpu/
# Includes against the order that are left: (from, to) -> number of #include lines. May only become fewer.
CPP_EXCEPTIONS = {
    ("attention", "cpu/runtime"): 2,  # dispatch.h: waits for lengths, records a gradient in stream order
}

MAX_ENTRIES = 25
# Folders with more entries, and why. A folder that fits must not be listed.
LARGE_FOLDERS = {
    "src/tiny_llm": "the course opens its modules here by fixed names",
    "benches": "a module for each benchmark, so that `pdm bench NAME` finds it",
    "src/extensions/src/tests": "a driver for each part of the kernels, and what they share",
    "tests": "the test files of the course are here, one for each chapter",
}
