"""`tiny-llm chat`: a conversation."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress

from ..loading import LoadError
from . import arguments, endings, inputs, summary
from .answerers import Answerer
from .assembly import assemble, read_wishes
from .endings import Refusal
from .generate import WRITING_PROMPT, begin, messages
from .progress import Progress, dimmed, is_terminal

SUMMARY = "talk to a model"
DESCRIPTION = """Talk to a model, turn by turn. Ctrl-C stops an answer and keeps the conversation, Ctrl-D
leaves. The arrow keys bring back earlier lines. From a pipe, every line is a turn."""
HELP = """/reset   forget the conversation
/help    show this
/exit    leave, as does Ctrl-D
Ctrl-C   stop an answer, or drop the line being typed"""
PROMPT = "> "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model(parser)
    arguments.add_solution(parser)
    arguments.add_machine(parser)
    arguments.add_conversation(parser)
    arguments.add_answer(parser)


def run(options: argparse.Namespace) -> int:
    """Converse until the input ends."""
    read_wishes(options)
    with Progress() as progress:
        answerer = assemble(options, progress)
    conversation = Conversation(answerer, options)
    conversation.write_prompt("Hello.")  # a template that refuses does so before anybody has typed
    typing = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    if typing:
        remember_lines()
        print(f"{summary.setting(answerer.description)}. /help explains, Ctrl-D leaves.")
    while (line := read_line(typing)) is not None:
        match line.strip():
            case "":
                pass
            case "/exit":
                break
            case "/help":
                print(HELP)
            case "/reset":
                conversation.turns.clear()
            case text if text.startswith("/"):
                note(f"{text.split()[0]}: no such command; /help shows those that there are")
            case question:
                conversation.ask(question, can_stop=typing)
    return 0


class Conversation:
    """All that was said, the user's turns and the model's in turn."""

    def __init__(self, answerer: Answerer, options: argparse.Namespace):
        self.turns: list[str] = []
        self._answerer = answerer
        self._options = options

    def ask(self, question: str, *, can_stop: bool) -> None:
        """Print the answer. One that Ctrl-C stops counts as far as it came."""
        said = ""
        try:
            for piece in self._answer(question):
                print(piece, end="", flush=True)
                said += piece
        except KeyboardInterrupt:
            if not can_stop:
                raise
            note("\n(stopped)")
        except (Refusal, LoadError) as refusal:  # LoadError: a chat template that fails
            note(f"{refusal}; /reset starts anew")
        if said:
            self.turns += [question, said]

    def write_prompt(self, question: str) -> str:
        """The conversation with one more question, as the model reads it."""
        said = messages(self._options.system, *self.turns, question)
        return self._answerer.write_prompt(said, self._options.enable_thinking)

    def _answer(self, question: str) -> Iterator[str]:
        with Progress() as progress:
            progress(WRITING_PROMPT, 0, None)
            prompt = self.write_prompt(question)
            wishes = read_wishes(self._options)
            generation = begin(self._answerer, prompt, wishes, progress, source="the conversation")
            first = next(generation, "")
        yield first
        yield from generation
        print()
        note(summary.numbers(generation))


def read_line(typing: bool) -> str | None:
    """The next line; None at the end of the input."""
    if not typing:
        return inputs.read_line()
    try:
        return input(PROMPT)
    except UnicodeDecodeError:
        note("that line is no text in the encoding of this terminal, and was dropped")
        return ""
    except EOFError:
        print()
        return None
    except KeyboardInterrupt:
        print()
        return ""


def remember_lines() -> None:
    """Let the arrow keys edit the line and bring back earlier ones, where Python was built with that."""
    with suppress(ImportError):
        import readline  # noqa: F401 - importing it changes `input`


def note(text: str) -> None:
    """Say something that is no answer."""
    endings.note(dimmed(text, sys.stderr))
