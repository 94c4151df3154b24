"""The rooms of src in their order, and the folders that may be large: data for test_arrows.py.

A room may use the rooms of its own line and of the lines before. Modules must not make a circle anyway.
"""

# src/tiny_llm. The fixed names of the course have a place, too: basics.py to attention.py are ops, the model
# classes belong to course, generate.py and batch.py to generation.
PYTHON = [
    ["errors"],
    ["checks"],
    ["runtime"],
    ["ops", "basics", "embedding", "layer_norm", "positional_encoding", "quantize", "attention"],
    ["cache"],
    ["sampling", "sampler"],
    ["models"],
    ["loading"],
    ["course", "qwen2_week1", "qwen2_week2", "qwen2_week3", "qwen3"],
    ["generation", "generate", "batch"],
    ["llm"],
    ["chat"],
    ["benchmark"],
    ["cli"],
]
# Only the package's __init__ imports these: names for the course, without code of their own.
ENTRIES = {"kv_cache", "paged_kv_cache", "__init__", "__main__"}
# Imports inside functions, each with the reason; all others stand at the top of their module.
LATE_IMPORTS = {
    ("__init__", "runtime.version"): "reads pyproject.toml, which only __version__ needs",
    ("__main__", "cli"): "Ctrl-C during these imports ends the program without a traceback",
    (
        "loading.find",
        "loading.hub.download",
    ): "huggingface_hub is slow to import, and a cached model needs none of it",
    (
        "loading.tokenizer.chat_template",
        "loading.tokenizer.template_process",
    ): "jinja2 is slow to import, and only a trusted template needs it here",
}

# src/extensions/src; "." are the files at the top. GRAPH is what MLX sees: checks, primitives, gradients.
CPP = [
    ["core"],
    ["cpu/kernels"],  # the interface: tables of function pointers, and the choice among instruction sets
    [".", "attention", "rows"],
    ["cpu/runtime"],
    ["cpu/vec"],
    ["cpu/gemm"],
    ["cpu/rows"],
    ["cpu/quantized", "cpu/attention", "cpu/attention/decode"],
    ["cpu/block"],
    ["cpu/isa"],
]
GRAPH = {".", "attention", "rows"}
# These use none of GRAPH.
WITHOUT_GRAPH = {"core", "cpu/kernels", "cpu/runtime", "cpu/vec", "cpu/isa"}
GPU = {"metal", "metal/kernels", "metal/quantized", "cuda", "no_gpu"}
# Arrows against the order that are left: (from, to) -> number of #include lines. They may only become fewer.
CPP_EXCEPTIONS = {
    (".", "cpu/runtime"): 5,  # the number of threads, and waiting for arrays
    ("attention", "cpu/attention"): 1,
    ("attention", "cpu/runtime"): 3,
    ("core", "attention"): 1,
    ("cpu/gemm", "cpu/attention"): 2,
    ("cpu/runtime", "."): 1,
    ("cpu/runtime", "attention"): 6,
    ("metal", "cpu/kernels"): 2,  # element types
    ("rows", "cpu/runtime"): 1,
}

MOST_ENTRIES = 25
# Folders with more entries, and why. A folder that fits must not be listed.
LARGE_FOLDERS = {
    "benches": "contestants, cases and reports of several stacks, which become one",
    "src/tiny_llm": "the course opens its modules here by fixed names",
    "tests": "the test files of the course stand here, one for each chapter",
    "tests/kernels": "one file for each property of the kernels",
    "tests/metal": "one file for each property of the Metal kernels, with the harness that runs them",
    "tests/support": "one file for each oracle, fake or builder that several folders of tests use",
    "training": "one file for each kind of sentence that the embedded model learns",
}
