"""`tiny-llm serve` without drafts, as a program of its own.

Greedy answers of random weights run in circles, where drafts from the text are nearly always right. The other
servers, and `stream_generate`, have no drafts either.
"""

from __future__ import annotations

import argparse
import sys

from tiny_llm import LLM
from tiny_llm.cli import serve
from tiny_llm.cli.exit_codes import exit_code_of
from tiny_llm.engine import Engine
from tiny_llm.loading.progress import Progress


def make_engine(model: str, options: argparse.Namespace, progress: Progress) -> Engine:
    sizes = {name: value for name in serve.ENGINE_OPTIONS if (value := getattr(options, name)) is not None}
    engine = Engine(LLM(model, offline=True, progress=progress), lookup=False, **sizes)
    serve.warm_up(engine)
    return engine


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    chosen = parser.parse_args()
    sys.exit(exit_code_of("serve", lambda: serve.run_with(make_engine, chosen)))
