"""`tiny-llm generate`, and `pdm run main`: one question, one answer."""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import chain

from ..engine.generation import Generation
from ..errors import ArgumentError
from ..loading.progress import Progress as Report
from . import arguments, summary
from .answerers import Answerer, Messages, Wishes
from .assembly import assemble, read_wishes
from .endings import Refusal, note
from .inputs import read_all
from .progress import Progress, dimmed

SUMMARY = "answer one question"
DESCRIPTION = """Answers one question. Without any flag the small model that ships inside answers; it needs no
network. The answer goes to standard output as it grows, all else to standard error."""
QUESTION = "What is FlashAttention?"
WRITING_PROMPT, ANSWERING = "writing the prompt", "answering"  # what progress calls these tasks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompt", type=arguments.some_text, default=QUESTION, metavar="TEXT",
        help="the question; - reads it from standard input (default: %(default)r)",
    )  # fmt: skip
    arguments.add_json(parser)
    arguments.add_model(parser)
    arguments.add_solution(parser)
    arguments.add_machine(parser)
    arguments.add_conversation(parser)
    arguments.add_answer(parser)


def run(options: argparse.Namespace) -> int:
    """Print the answer piece by piece, then what it took; or all of it as JSON."""
    wishes = read_wishes(options)
    question = read_question(options.prompt)
    with Progress() as progress:
        answerer = assemble(options, progress)
        progress(WRITING_PROMPT, 0, None)
        prompt = answerer.write_prompt(messages(options.system, question), options.enable_thinking)
        generation = begin(answerer, prompt, wishes, progress)
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
        print(json.dumps(record, indent=2))
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


def messages(system: str, *turns: str) -> Messages:
    """A conversation whose turns are the user's and the model's in turn, behind a system message if any."""
    roles = ["user", "assistant"] * len(turns)
    said = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]
    return [{"role": "system", "content": system}, *said] if system else said


def begin(
    answerer: Answerer, prompt: str, wishes: Wishes, progress: Report, *, source: str = "--prompt"
) -> Generation:
    """Start an answer; a prompt that the model cannot take is refused by the name of its `source`."""
    try:
        return answerer.answer(prompt, wishes, progress)
    except ArgumentError as error:
        place = source if error.argument == "prompt" else error.argument
        raise Refusal(f"{place}: {error.reason}") from error


def show(first: str, rest: Iterator[str]) -> str:
    """Print an answer as it grows, with a line break behind it; return it."""
    text = ""
    for piece in chain([first], rest):
        print(piece, end="", flush=True)
        text += piece
    print()
    return text
