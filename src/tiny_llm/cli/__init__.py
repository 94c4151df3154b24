"""The program `tiny-llm`: each command is a module with its description, its arguments and its `run`."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from ..runtime.version import version
from .device import set_threads
from .exit_codes import REFUSED, drop_unwritten, exit_code_of, open_missing_streams, print_stderr

# Each command with its summary. Its module is imported when it is chosen, without those of the others.
COMMANDS = {
    "generate": "answer one question",
    "chat": "talk to a model",
    "batch": "answer many questions at once: from a file, or sixteen built-in ones",
    "serve": "answer requests of OpenAI's, Anthropic's and Ollama's clients over HTTP",
    "bench": "measure prefill and decode speed",
    "export": "dequantize a model into a folder that transformers can load",
    "warm-up": "compile the GPU kernels of a model, so that its first answer starts sooner",
    "demo": "compare FlashAttention with plain attention",
    "visualize": "show the attention of a prompt in the browser",
    "info": "show versions, devices, instruction sets and the speed of attention",
}
# The modules of these are in tiny_llm_tools, which nothing else imports.
TOOLS = {"bench", "demo", "visualize"}


class Parser(argparse.ArgumentParser):
    """Accepts options by their full names only, and reports a wrong one in one line."""

    def __init__(self, **settings: Any):
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"{self.prog}: {message.removeprefix('argument ')}; see --help\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit like a command: an unwritable standard error does not change the exit code."""
        open_missing_streams()
        if message:
            print_stderr(message.rstrip())
        drop_unwritten(sys.stderr)
        sys.exit(status)

    def print_help(self, file: Any = None) -> None:
        """Print it like the output of a command: the exit code is not 0 if that fails."""
        if file is None:
            self.exit(exit_code_of(self.prog, lambda: print_text(self.format_help().rstrip())))
        super().print_help(file)


class Overview(argparse.HelpFormatter):
    """Keeps each command on one line with its summary: argparse forgets their indent in the longest name."""

    def __init__(self, prog: str):
        super().__init__(prog)
        self._action_max_length = 4 + max(map(len, COMMANDS))


class VersionAction(argparse.Action):
    """Prints the version and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.exit(exit_code_of(parser.prog, lambda: print_text(f"{parser.prog} {version()}")))


def print_text(text: str) -> int:
    print(text)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    parser = Parser(
        prog="tiny-llm",
        description="Runs small language models on this machine, with FlashAttention on the CPU.",
        epilog="tiny-llm COMMAND --help explains the options of a command.",
        formatter_class=Overview,
    )
    parser.add_argument("--version", action=VersionAction, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    words = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in words if not word.startswith("-")), None)  # options take no value
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == chosen:
            add_options(command, name)
    parser.set_defaults(program=parser.prog, run=lambda options: print_overview(parser))
    return parse_and_run(parser, argv)


def print_overview(parser: argparse.ArgumentParser) -> int:
    """The help, on standard error, when no command was given."""
    parser.print_help(sys.stderr)
    return REFUSED


def run_command(name: str, program: str, argv: Sequence[str] | None = None, **settings: Any) -> int:
    """Run one command as a program of its own, such as main.py; `settings` have no option."""
    parser = Parser(prog=program)
    add_options(parser, name)
    parser.set_defaults(**settings)
    return parse_and_run(parser, argv)


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Let a parser take what the command of this name does, and explain it."""
    package = "tiny_llm_tools.cli" if name in TOOLS else __name__
    command = import_module(f"{package}.{name.replace('-', '_')}")
    parser.description = command.DESCRIPTION
    command.add_arguments(parser)
    parser.set_defaults(run=command.run, program=parser.prog)


def parse_and_run(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        # The command is known by now; argparse reports arguments that it does not take to the main parser.
        parser.prog = options.program
        problem = "unknown option" if unknown[0].startswith("-") else "unexpected argument"
        if problem == "unexpected argument" and "prompt" in options:
            problem += "; give the question by --prompt"
        parser.error(f"{unknown[0]}: {problem}")

    def run() -> int:
        if getattr(options, "threads", None) is not None:
            set_threads(options.threads)  # of the whole process
        return int(options.run(options))

    return exit_code_of(options.program, run)
