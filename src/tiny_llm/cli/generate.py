"""`tiny-llm generate`, and `pdm run main`: one question, one answer."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from ..chat.turns import messages
from ..errors import ArgumentError
from ..generation.generation import Generation
from ..generation.prompt_cache import PromptCache
from ..loading.progress import Progress as Report
from ..sampling.params import Sampling
from . import arguments, summary
from .backends import Backend
from .build_backend import build_backend, check_raw, read_sampling
from .exit_codes import Refusal, print_stderr
from .json_output import print_json
from .progress import Progress, dimmed
from .standard_input import read_all

SUMMARY = "answer one question"
DESCRIPTION = """Answers one question. Without any flag the small model that ships inside answers; it needs no
network. The answer goes to standard output as it grows, all else to standard error."""
QUESTION = "What is FlashAttention?"
PREPARING, ANSWERING = "writing the prompt", "answering"  # what progress calls these tasks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompt", type=arguments.nonblank_text, default=QUESTION, metavar="TEXT",
        help="the question, or the text to be continued; - reads it from standard input "
        "(default: %(default)r)",
    )  # fmt: skip
    arguments.add_raw(parser)
    arguments.add_json(parser)
    arguments.add_model(parser)
    arguments.add_solution(parser)
    arguments.add_machine(parser)
    arguments.add_conversation(parser)
    arguments.add_answer(parser)


def run(options: argparse.Namespace) -> int:
    """Print the answer piece by piece, then what it took; or all of it as JSON."""
    sampling = read_sampling(options)
    check_raw(options)
    question = read_question(options.prompt)
    with Progress() as progress:
        backend = build_backend(options, progress)
        progress(PREPARING, 0, None)
        prompt = question
        if not options.raw:
            with as_refusal_of("--prompt"):
                said = messages(options.system, [], question)
                prompt = backend.write_prompt(said, options.enable_thinking)
        generation = begin(backend, prompt, sampling, progress)
        first = next(generation, "")
        if options.json:
            progress(ANSWERING, 0, None)
            first += "".join(generation)
    if options.json:
        record = {
            **backend.description,
            "prompt": question,
            "text": first,
            **summary.fields(generation),
        }
        print_json(record, indent=2)
        return 0
    show(first, generation)
    report = f"{summary.numbers(generation)}\n{summary.setting(backend.description)}"
    print_stderr(dimmed(report, sys.stderr))
    return 0


def read_question(given: str) -> str:
    question = read_all("--prompt") if given == "-" else given
    if not question.strip():
        raise Refusal("--prompt: got an empty text, expected a question")
    return question


@contextmanager
def as_refusal_of(source: str) -> Iterator[None]:
    """Refuse a prompt that cannot be used by the name of where it came from."""
    try:
        yield
    except ArgumentError as error:
        place = source if error.argument in ("prompt", "messages", "system") else error.argument
        raise Refusal(f"{place}: {error.reason}") from error


def begin(
    backend: Backend,
    prompt: str,
    sampling: Sampling,
    progress: Report,
    *,
    source: str = "--prompt",
    prompt_cache: PromptCache | None = None,
) -> Generation:
    """Start an answer; a prompt, or a length, that the model has no room for is refused."""
    with as_refusal_of(source):
        generation = backend.answer(prompt, sampling, progress, prompt_cache)
    length, requested = generation.statistics.prompt_tokens, sampling.max_tokens
    if requested is not None and requested > backend.context - length:
        raise Refusal(
            f"--max-tokens: got {requested}, expected at most {backend.context - length}: "
            f"the context of {backend.context} tokens less {length} of the prompt"
        )
    return generation


def show(first: str, rest: Iterator[str]) -> str:
    """Print an answer as it grows, with a line break behind it; return it."""
    text = ""
    for piece in chain([first], rest):
        print(piece, end="", flush=True)
        text += piece
    print()
    return text
