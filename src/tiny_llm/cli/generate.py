"""`tiny-llm generate` and `pdm run main`: answer one question."""

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import chain

from ..generation.messages import RawText, build_messages
from ..loading.progress import Progress
from ..sampling.grammar import Grammar
from ..sampling.params import Sampling
from . import arguments
from .backends import Answer, Backend, answer_fields, settings_line, statistics_line
from .build_backend import build_backend, check_raw, read_grammar, read_sampling
from .exit_codes import Refusal, flag, naming_flags
from .output_files import print_json
from .progress import ProgressBar, print_dimmed
from .prompts import read_all

DESCRIPTION = """Answers one question. By default the small built-in model answers, without a network. The
answer is streamed to standard output; everything else goes to standard error."""
QUESTION = "What is FlashAttention?"
PREPARING, ANSWERING = "preparing the prompt", "answering"  # names of tasks in the progress bar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompt", type=arguments.nonblank_text, default=QUESTION, metavar="TEXT",
        help="the question, or with --raw the text to continue; - reads standard input "
        "(default: %(default)r)",
    )  # fmt: skip
    arguments.add_raw(parser)
    arguments.add_json(parser)
    arguments.add_model(parser)
    arguments.add_solution(parser)
    arguments.add_machine(parser)
    arguments.add_ranks(parser)
    arguments.add_conversation(parser)
    arguments.add_answer(parser)
    arguments.add_response_format(parser)


def run(options: argparse.Namespace) -> int:
    """Print the answer piece by piece, then its statistics; or all of it as JSON."""
    sampling = read_sampling(options)
    grammar = read_grammar(options)
    check_raw(options)
    question = read_question(options.prompt)
    with ProgressBar() as progress:
        backend = build_backend(options, progress)
        progress(PREPARING, 0, None)
        prompt: str = RawText(question)
        if not options.raw:
            with naming_source("--prompt"):
                conversation = build_messages(options.system, [], question)
                prompt = backend.render(conversation, options.enable_thinking)
        generation = start_generation(backend, prompt, sampling, progress, grammar=grammar)
        first = next(generation, "")
        if options.json:
            progress(ANSWERING, 0, None)
            first += "".join(generation)
    if options.json:
        record = {**backend.description, "prompt": question, "text": first, **answer_fields(generation)}
        print_json(record, indent=2)
        return 0
    print_stream(first, generation)
    print_dimmed(f"{statistics_line(generation)}\n{settings_line(backend.description)}")
    return 0


def read_question(given: str) -> str:
    question = read_all("--prompt") if given == "-" else given
    if not question.strip():
        raise Refusal("--prompt: got an empty text, expected a question")
    return question


def naming_source(source: str, **places: str) -> AbstractContextManager[None]:
    """Turn an error about a prompt into a Refusal that names where it comes from."""
    return naming_flags(prompt=source, messages=source, system=source, **places)


def start_generation(
    backend: Backend,
    prompt: str,
    sampling: Sampling,
    progress: Progress,
    *,
    source: str = "--prompt",
    grammar: Grammar | None = None,
) -> Answer:
    """Start an answer; a prompt or a length that does not fit into the context, or a grammar, is refused."""
    with naming_source(source, response_format="" if grammar is None else flag(grammar.kind)):
        generation = backend.generate(prompt, sampling, progress, grammar)
    length, requested = generation.result.statistics.prompt_tokens, sampling.max_tokens
    if requested is not None and requested > backend.context - length:
        raise Refusal(
            f"--max-tokens: got {requested}, expected at most {backend.context - length}: "
            f"the context of {backend.context} tokens minus {length} of the prompt"
        )
    return generation


def print_stream(first: str, rest: Iterator[str]) -> None:
    """Print an answer as it grows, and a line break at its end."""
    for piece in chain([first], rest):
        print(piece, end="", flush=True)
    print()
