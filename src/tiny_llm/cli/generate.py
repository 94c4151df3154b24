"""`tiny-llm generate`, and `pdm run main`: one question, one answer."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from ..errors import ArgumentError
from ..generation.generation import Generation
from ..generation.messages import messages
from ..generation.prompt_cache import PromptCache
from ..loading.progress import Progress as Report
from ..sampling.params import Sampling
from . import arguments, summary
from .answerers import Answerer
from .assembly import assemble, check_raw, read_sampling
from .endings import Refusal, note
from .inputs import read_all
from .json_text import print_json
from .progress import Progress, dimmed

SUMMARY = "answer one question"
DESCRIPTION = """Answers one question. Without any flag the small model that ships inside answers; it needs no
network. The answer goes to standard output as it grows, all else to standard error."""
QUESTION = "What is FlashAttention?"
WRITING_PROMPT, ANSWERING = "writing the prompt", "answering"  # what progress calls these tasks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompt", type=arguments.some_text, default=QUESTION, metavar="TEXT",
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
        answerer = assemble(options, progress)
        progress(WRITING_PROMPT, 0, None)
        prompt = question
        if not options.raw:
            with blaming("--prompt"):
                said = messages(options.system, [], question)
                prompt = answerer.write_prompt(said, options.enable_thinking)
        generation = begin(answerer, prompt, sampling, progress)
        first = next(generation, "")
        if options.json:
            progress(ANSWERING, 0, None)
            first += "".join(generation)
    if options.json:
        record = {
            **answerer.description,
            "prompt": question,
            "text": first,
            **summary.fields(generation),
        }
        print_json(record, indent=2)
        return 0
    show(first, generation)
    report = f"{summary.numbers(generation)}\n{summary.setting(answerer.description)}"
    note(dimmed(report, sys.stderr))
    return 0


def read_question(given: str) -> str:
    question = read_all("--prompt") if given == "-" else given
    if not question.strip():
        raise Refusal("--prompt: got an empty text, expected a question")
    return question


@contextmanager
def blaming(source: str) -> Iterator[None]:
    """Refuse a prompt that cannot be used by the name of where it came from."""
    try:
        yield
    except ArgumentError as error:
        place = source if error.argument in ("prompt", "messages", "system") else error.argument
        raise Refusal(f"{place}: {error.reason}") from error


def begin(
    answerer: Answerer,
    prompt: str,
    sampling: Sampling,
    progress: Report,
    *,
    source: str = "--prompt",
    prompt_cache: PromptCache | None = None,
) -> Generation:
    """Start an answer; a prompt, or a length, that the model has no room for is refused."""
    with blaming(source):
        generation = answerer.answer(prompt, sampling, progress, prompt_cache)
    length, asked = generation.statistics.prompt_tokens, sampling.max_tokens
    if asked is not None and asked > answerer.context - length:
        raise Refusal(
            f"--max-tokens: got {asked}, expected at most {answerer.context - length}: "
            f"the context of {answerer.context} tokens less {length} of the prompt"
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
