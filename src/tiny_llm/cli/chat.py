"""`tiny-llm chat`: a conversation."""

import argparse
import json
import sys
from contextlib import suppress
from itertools import chain

from ..chat.turns import Conversation
from ..generation.generation import Generation
from ..loading import LoadError
from . import arguments, exit_codes, standard_input, summary
from .backends import Backend
from .batch_input import InvalidLine, check_text
from .build_backend import build_backend, read_sampling
from .exit_codes import Refusal
from .generate import PREPARING, as_refusal_of, begin
from .json_output import print_json
from .progress import Progress, dimmed, is_terminal

SUMMARY = "talk to a model"
DESCRIPTION = """Talk to a model, turn by turn. Ctrl-C stops an answer and keeps the conversation, Ctrl-D
leaves. The arrow keys bring back earlier lines. From a pipe, every line is a turn; with --json one that
begins with { is an object with a prompt."""
HELP = """/reset   forget the conversation
/help    show this
/exit    leave, as does Ctrl-D
Ctrl-C   stop an answer, or drop the line being typed"""
PROMPT = "> "
SOURCE = "the conversation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser, "print one JSON object for each turn, on a line of its own, for scripts")
    arguments.add_model(parser)
    arguments.add_solution(parser)
    arguments.add_machine(parser)
    arguments.add_conversation(parser)
    arguments.add_answer(parser)


def run(options: argparse.Namespace) -> int:
    """Converse until the input ends."""
    read_sampling(options)
    with Progress() as progress:
        backend = build_backend(options, progress)
    chat = Chat(backend, options)
    typing = is_terminal(sys.stdin) and is_terminal(sys.stdout) and not options.json
    if typing:
        enable_line_editing()
        print(f"{summary.setting(backend.description)}. /help explains, Ctrl-D leaves.")
    while (line := read_line(typing)) is not None:
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
                chat.ask_object(text)
            case question:
                chat.ask(question, can_stop=typing)
    return 0


class Chat:
    """A conversation with whoever answers, as it is printed."""

    def __init__(self, backend: Backend, options: argparse.Namespace):
        self._backend = backend
        self._options = options
        self._prompt_cache = backend.make_prompt_cache()
        self.reset()
        # A template, or a limit, that is refused is so before anybody has typed.
        with as_refusal_of("--system"):
            self.conversation.check_system()
        asked = options.max_tokens
        if asked is not None and asked >= backend.context:
            raise Refusal(f"--max-tokens: got {asked}, expected fewer than the context of {backend.context}")

    def reset(self) -> None:
        """Begin anew. What the cache holds of the system message stays good."""
        backend, options = self._backend, self._options
        self.conversation = Conversation(
            lambda said: backend.write_prompt(said, options.enable_thinking),
            backend.count_tokens,
            context=backend.context,
            system=options.system,
        )

    def ask_object(self, line: str) -> None:
        """Answer the prompt of a line of JSON: any text, also one that looks like a command."""
        try:
            question = read_prompt(line)
        except InvalidLine as error:
            self.print_error(line, str(error))
        else:
            self.ask(question, can_stop=False)

    def ask(self, question: str, *, can_stop: bool) -> None:
        """Print the answer. One that Ctrl-C stops counts as far as it came."""
        said, generation = "", None
        try:
            first, generation = self._begin(question)
            for piece in chain([first], generation):
                if not self._options.json:
                    print(piece, end="", flush=True)
                said += piece
        except KeyboardInterrupt:
            if not can_stop:
                raise
            print_dimmed("\n(stopped)")
            if not said:
                return
            generation = None  # its numbers are those of no whole answer
        except (Refusal, LoadError) as refusal:  # LoadError: a chat template that fails
            self.print_error(question, f"{refusal}; /reset starts anew")
            return
        before = self.conversation.dropped_turns
        self.conversation.answered(question, said)
        self._report(question, said, self.conversation.dropped_turns - before, generation)

    def print_error(self, question: str, sentence: str) -> None:
        """Say why a line has no answer."""
        if self._options.json:
            print_json({"prompt": question, "error": sentence})
        else:
            print_dimmed(sentence)

    def _begin(self, question: str) -> tuple[str, Generation]:
        """The first piece of an answer, and the others."""
        with Progress() as progress:
            progress(PREPARING, 0, None)
            sampling = read_sampling(self._options)
            with as_refusal_of(SOURCE):
                prompt = self.conversation.ask(question, sampling.max_tokens)
            generation = begin(
                self._backend,
                prompt.text,
                sampling,
                progress,
                source=SOURCE,
                prompt_cache=self._prompt_cache,
            )
            return next(generation, ""), generation

    def _report(self, question: str, said: str, dropped: int, generation: Generation | None) -> None:
        """What is told behind an answer; None stands for one that was stopped."""
        if self._options.json and generation is not None:
            numbers = summary.fields(generation)
            print_json({"prompt": question, "text": said, "dropped_turns": dropped, **numbers})
            return
        if generation is not None:
            print()
        if dropped:
            turns = "turn was" if dropped == 1 else f"{dropped} turns were"
            print_dimmed(f"the oldest {turns} let go: the context of {self._backend.context} tokens was full")
        if generation is not None:
            print_dimmed(summary.numbers(generation))


def read_prompt(line: str) -> str:
    """The text in a line such as {"prompt": "Hello."}."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidLine('got no JSON, expected {"prompt": TEXT}') from error
    if set(given) != {"prompt"}:
        raise InvalidLine(f"got the fields {', '.join(given) or 'none'}, expected prompt alone")
    return check_text("prompt", given["prompt"])


def read_line(typing: bool) -> str | None:
    """The next line; None at the end of the input."""
    if not typing:
        return standard_input.read_line()
    try:
        return input(PROMPT)
    except UnicodeDecodeError:
        print_dimmed("that line is no text in the encoding of this terminal, and was dropped")
        return ""
    except EOFError:
        print()
        return None
    except KeyboardInterrupt:
        print()
        return ""


def enable_line_editing() -> None:
    """Let the arrow keys edit the line and bring back earlier ones, where Python was built with that."""
    with suppress(ImportError):
        import readline  # noqa: F401 - importing it changes `input`


def print_dimmed(text: str) -> None:
    """Say something that is no answer."""
    exit_codes.print_stderr(dimmed(text, sys.stderr))
