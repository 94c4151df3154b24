"""The flags that commands share, each defined once, with the checks that need nothing but the flag itself."""

import argparse
import math
from collections.abc import Callable

from ..llm import MAX_TOKENS
from .device import DEVICES, DTYPES
from .loaders import DEFAULT_LOADER, LOADERS

SOLUTIONS = ("tiny_llm", "mlx")
OTHER_SOLUTIONS = (
    "ref",
    "tiny_llm_ref",
)  # the names that other editions of the course give to their solution
SYSTEM = "You are a helpful assistant."


def integer(least: int) -> Callable[[str], int]:
    """The type of a flag that takes an integer of at least so much."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number of at least {least}")
        return number

    return convert


def number_where(allowed: Callable[[float], bool], expected: str) -> Callable[[str], float]:
    """The type of a flag that takes a finite number for which `allowed` holds."""

    def convert(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and allowed(number)):
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a number {expected}")
        return number

    return convert


def text(given: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in given):
        raise argparse.ArgumentTypeError(f"got {given!r}, expected text in the encoding of this terminal")
    return given


def nonblank_text(given: str) -> str:
    if not given.strip():
        raise argparse.ArgumentTypeError("got an empty text, expected at least one word")
    return text(given)


def stop_string(given: str) -> str:
    if not given:
        raise argparse.ArgumentTypeError("got an empty text, expected at least one character")
    return text(given)


def solution(name: str) -> str:
    if name in OTHER_SOLUTIONS:
        raise argparse.ArgumentTypeError(
            f"there is no {name} here: the one solution is tiny_llm, in src/tiny_llm; mlx is the peer"
        )
    return name


def add_model(
    parser: argparse.ArgumentParser, default: str | None = "tiny", default_text: str | None = None
) -> None:
    """`default_text` explains a default that the command works out."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", type=nonblank_text, default=default, metavar="NAME",
        help="tiny (ships inside), a shortcut such as qwen2-0.5b or qwen3-0.6b, a name on the Hugging Face "
        "hub, a folder, or random:SHORTCUT for that shape with random weights "
        f"(default: {default_text or default})",
    )  # fmt: skip
    group.add_argument(
        "--offline", action="store_true", default=None,
        help="never use the network: a model that is not on this machine is an error",
    )  # fmt: skip


def add_solution(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it runs")
    group.add_argument(
        "--solution", type=solution, choices=SOLUTIONS, default="tiny_llm",
        help="who computes: this project, or mlx: the model and the loop of mlx-lm (default: %(default)s)",
    )  # fmt: skip
    stages = "; ".join(f"{name}: {stage.summary}" for name, stage in LOADERS.items())
    group.add_argument(
        "--loader", choices=LOADERS,
        help=f"stage of the course that tiny_llm runs. {stages} (default: {DEFAULT_LOADER})",
    )  # fmt: skip


def add_machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("machine")
    group.add_argument(
        "--enable-flash-attn", action=argparse.BooleanOptionalAction,
        help="whether attention is FlashAttention or the readable grouped form "
        "(default: yes, where the loader has both)",
    )  # fmt: skip
    group.add_argument(
        "--device", choices=DEVICES, help="where to compute (default: the GPU if MLX has one, else the CPU)"
    )
    group.add_argument(
        "--dtype", choices=["auto", *DTYPES], default="auto",
        help="type of the activations; auto: bfloat16 where products of it are fast, float16 on Metal, else "
        "float32 (default: %(default)s)",
    )  # fmt: skip


def add_conversation(parser: argparse.ArgumentParser) -> None:
    """What the model is told before the question, and how."""
    group = parser.add_argument_group("conversation")
    group.add_argument(
        "--system", type=text, default=SYSTEM, metavar="TEXT",
        help="what the model is told about its part (default: %(default)r; '' leaves it out)",
    )  # fmt: skip
    group.add_argument(
        "--enable-thinking", action="store_true",
        help="let a model that can do so, such as Qwen3, think aloud before it answers",
    )  # fmt: skip


def add_raw(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--raw", action="store_true",
        help="continue the text as it is, without a chat template: for models that are not made to answer",
    )  # fmt: skip


def add_answer(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("answer")
    group.add_argument(
        "--max-tokens", type=integer(1), metavar="N",
        help="the most tokens of an answer, of about four letters each "
        f"(default: {MAX_TOKENS}, or what the context has room for)",
    )  # fmt: skip
    group.add_argument(
        "--stop", type=stop_string, action="append", default=[], metavar="TEXT",
        help="stop before this text appears; may be given several times",
    )  # fmt: skip
    group.add_argument(
        "--draft-model", type=nonblank_text, metavar="NAME",
        help="a small model of the same vocabulary that guesses ahead: answers stay the same, or as likely",
    )  # fmt: skip
    group.add_argument(
        "--sampler-temp", type=number_where(lambda x: x >= 0, "of at least 0"), default=0.0, metavar="T",
        help="0 takes the most probable token each time, 1 draws by probability, more is wilder (default: 0)",
    )  # fmt: skip
    group.add_argument(
        "--sampler-top-k", type=integer(1), metavar="K", help="draw only from the K most probable tokens"
    )
    group.add_argument(
        "--sampler-top-p", type=number_where(lambda x: 0 < x <= 1, "above 0, at most 1"), metavar="P",
        help="draw only from the most probable tokens that together have this probability",
    )  # fmt: skip
    group.add_argument(
        "--sampler-min-p", type=number_where(lambda x: 0 <= x <= 1, "from 0 to 1"), metavar="P",
        help="draw only from tokens with at least this share of the best one's probability",
    )  # fmt: skip
    group.add_argument(
        "--seed",
        type=integer(0),
        metavar="N",
        help="draw the same answer each time; another seed, another answer",
    )
    group.add_argument(
        "--repetition-penalty", type=number_where(lambda x: x > 0, "above 0"), metavar="R",
        help="above 1: make tokens less probable that were there before",
    )  # fmt: skip


def add_json(
    parser: argparse.ArgumentParser, what: str = "print one JSON object and nothing else, for scripts"
) -> None:
    parser.add_argument("--json", action="store_true", help=what)
