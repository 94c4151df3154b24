"""The extension under test: its instruction sets, its last run, and the call that chooses among them."""

from tiny_llm.extension import load_extension

_extension = load_extension()
attention = _extension.attention
last_run = _extension.last_run
active_isa = _extension.cpu_isa
available_isas = _extension.cpu_isas
