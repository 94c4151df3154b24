"""`tiny-llm chat`: talk to a model."""

import argparse
import json
import sys
from contextlib import suppress
from itertools import chain

from ..chat.conversation import Conversation
from ..errors import RefusedArgument
from ..loading import LoadError
from . import arguments, prompts
from .backends import Answer, Backend, answer_fields, settings_line, statistics_line
from .build_backend import build_backend, read_sampling
from .exit_codes import Refusal
from .generate import PREPARING, naming_source, start_generation
from .output_files import print_json
from .progress import ProgressBar, is_terminal, print_dimmed
from .prompts import InvalidLine, check_text

DESCRIPTION = """Talk to a model. Ctrl-C stops an answer and keeps the conversation, Ctrl-D leaves, the arrow
keys recall earlier lines. From a pipe, every line is a message; with --json, a line that begins with { must
be {"prompt": TEXT}."""
HELP = """/reset   start a new conversation
/help    show this help
/exit    leave, like Ctrl-D
Ctrl-C   stop an answer, or clear the line being typed"""
PROMPT = "> "
SOURCE = "the conversation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser, "print one JSON object per answer, each on its own line, for scripts")
    arguments.add_model(parser)
    arguments.add_solution(parser)
    arguments.add_machine(parser)
    arguments.add_ranks(parser)
    arguments.add_conversation(parser)
    arguments.add_answer(parser)


def run(options: argparse.Namespace) -> int:
    """Converse until the input ends."""
    read_sampling(options)
    with ProgressBar() as progress:
        backend = build_backend(options, progress)
    chat = Chat(backend, options)
    interactive = is_terminal(sys.stdin) and is_terminal(sys.stdout) and not options.json
    if interactive:
        enable_line_editing()
        print(f"{settings_line(backend.description)}. /help lists the commands, Ctrl-D leaves.")
    while (line := read_line(interactive)) is not None:
        match line.strip():
            case "":
                pass
            case "/exit":
                break
            case "/help":
                print_json({"command": "/help", "text": HELP}) if options.json else print(HELP)
            case "/reset":
                chat.reset()
                if options.json:
                    print_json({"command": "/reset"})
            case text if text.startswith("/"):
                chat.print_error(text, f"{text.split()[0]}: no such command; /help lists the commands")
            case text if options.json and text.startswith("{"):
                try:
                    chat.answer(read_prompt(text), can_stop=False)
                except InvalidLine as error:
                    chat.print_error(text, str(error))
            case question:
                chat.answer(question, can_stop=interactive)
    return 0


class Chat:
    """A conversation with a backend, printed as text or as JSON."""

    def __init__(self, backend: Backend, options: argparse.Namespace):
        self._backend = backend
        self._options = options
        backend.keep_prompts()
        self.reset()
        # Refuse a bad system message or limit before the first question.
        with naming_source("--system"):
            self.conversation.check_system()
        limit = options.max_tokens
        if limit is not None and limit >= backend.context:
            raise Refusal(f"--max-tokens: got {limit}, expected fewer than the context of {backend.context}")

    def reset(self) -> None:
        """Start a new conversation; the cached tokens of the system message stay valid."""
        backend, options = self._backend, self._options
        self.conversation = Conversation(
            lambda conversation: backend.render(conversation, options.enable_thinking),
            backend.count_tokens,
            context=backend.context,
            system=options.system,
        )

    def answer(self, question: str, *, can_stop: bool) -> None:
        """Print the answer; after Ctrl-C the conversation keeps the part printed so far."""
        text, generation = "", None
        try:
            first, generation = self._begin(question)
            for piece in chain([first], generation):
                if not self._options.json:
                    print(piece, end="", flush=True)
                text += piece
        except KeyboardInterrupt:
            if not can_stop:
                raise
            print_dimmed("\n(stopped)")
            if not text:
                return
            generation = None  # statistics are for complete answers only
        except (Refusal, RefusedArgument, LoadError) as refusal:  # LoadError: the chat template failed
            self.print_error(question, f"{refusal}; /reset starts a new conversation")
            return
        before = self.conversation.dropped_turns
        self.conversation.add_turn(question, text)
        self._report(question, text, self.conversation.dropped_turns - before, generation)

    def print_error(self, question: str, sentence: str) -> None:
        """Print why a line has no answer."""
        if self._options.json:
            print_json({"prompt": question, "error": sentence})
        else:
            print_dimmed(sentence)

    def _begin(self, question: str) -> tuple[str, Answer]:
        """The first piece of an answer, and the generation that yields the others."""
        with ProgressBar() as progress:
            progress(PREPARING, 0, None)
            sampling = read_sampling(self._options)
            with naming_source(SOURCE):
                prompt = self.conversation.prompt_for(question, sampling.max_tokens)
            generation = start_generation(self._backend, prompt.text, sampling, progress, source=SOURCE)
            return next(generation, ""), generation

    def _report(self, question: str, text: str, dropped: int, generation: Answer | None) -> None:
        """Print what follows an answer; `generation` is None for one that was stopped."""
        if self._options.json and generation is not None:
            numbers = answer_fields(generation)
            print_json({"prompt": question, "text": text, "dropped_turns": dropped, **numbers})
            return
        if generation is not None:
            print()
        if dropped:
            turns = "turn" if dropped == 1 else f"{dropped} turns"
            print_dimmed(
                f"dropped the oldest {turns}: the context of {self._backend.context} tokens was full"
            )
        if generation is not None:
            print_dimmed(statistics_line(generation))


def read_prompt(line: str) -> str:
    """The text in a line such as {"prompt": "Hello."}; InvalidLine if it is no such object."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidLine('got invalid JSON, expected {"prompt": TEXT}') from error
    if set(given) != {"prompt"}:
        raise InvalidLine(f"got the fields {', '.join(given) or 'none'}, expected prompt alone")
    return check_text("prompt", given["prompt"])


def read_line(interactive: bool) -> str | None:
    """The next line; None at the end of the input."""
    if not interactive:
        return prompts.read_line()
    try:
        return input(PROMPT)
    except UnicodeDecodeError:
        print_dimmed("ignored a line that is not text in the encoding of this terminal")
        return ""
    except EOFError:
        print()
        return None
    except KeyboardInterrupt:
        print()
        return ""


def enable_line_editing() -> None:
    """Let the arrow keys edit the line and recall earlier ones, if Python was built with readline."""
    with suppress(ImportError):
        import readline  # noqa: F401 - importing it changes `input`
