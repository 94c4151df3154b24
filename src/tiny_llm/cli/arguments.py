"""Options shared by several commands, each defined once, with the checks that need only its own value."""

import argparse
import math
import re
from collections.abc import Callable, Collection
from pathlib import Path

from ..generation.defaults import MAX_TOKENS as DEFAULT_MAX_TOKENS
from ..runtime.device import DEVICES, DTYPES
from ..sampling.ranges import (
    COUNT_PENALTY,
    MAX_TOKENS,
    MIN_P,
    MIN_TOKENS,
    REPETITION_PENALTY,
    SEED,
    TEMP,
    TOP_P,
    Range,
)
from .loaders import DEFAULT_LOADER, LOADERS, Stage

SOLUTIONS = ("tiny_llm", "mlx")
FOLDER = Path(__file__).resolve().parents[2].name  # of a learner's copy of this package, such as my_llm
SYSTEM = "You are a helpful assistant."
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# The options of a model that is divided among processes, by the names that `LLM` has for them.
RANKS = ("tensor_parallel", "pipeline_parallel", "hostfile")
ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^\s/?#@,]+", re.IGNORECASE)


def number_where(
    allowed: Callable[[float], bool],
    expected: str,
    read: Callable[[str], float] = float,
    kind: str = "a number",
) -> Callable[[str], float]:
    """An argparse type: finite numbers for which `allowed` is true."""

    def convert(text: str) -> float:
        try:
            number = read(text)
        except ValueError:
            number = math.nan
        if number in (math.inf, -math.inf) or not allowed(number):  # for NaN, all comparisons are false
            raise argparse.ArgumentTypeError(f"got {text!r}, expected {kind} {expected}")
        return number

    return convert


def number_in(allowed: Range) -> Callable[[str], float]:
    """An argparse type: the numbers of a range."""
    return number_where(allowed.__contains__, str(allowed))


def integer_in(allowed: Range) -> Callable[[str], float]:
    """An argparse type: the integers of a range."""
    return number_where(allowed.__contains__, str(allowed), int, "a whole number")


def integer(minimum: int) -> Callable[[str], float]:
    """An argparse type: integers from `minimum` on."""
    return integer_in(Range(minimum))


def size(text: str) -> int:
    """An argparse type: bytes, with a unit such as M or G."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a size such as 512M or 4G")
    return int(float(match[1]) * UNITS[match[2].upper()])


def origin(text: str) -> str:
    """An argparse type: what a browser sends in the header Origin, or * for all."""
    if text != "*" and not ORIGIN.fullmatch(text):
        expected = "an origin such as https://app.example, without a path, or *"
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {expected}")
    return text.lower()


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
    """One of SOLUTIONS, or the folder whose code runs, which tools/learner/program.py has put in front."""
    if name in SOLUTIONS:
        return name
    if Path(name).name == FOLDER:
        return FOLDER
    raise argparse.ArgumentTypeError(
        f"got {name}, expected tiny_llm (this project), mlx (mlx-lm), or with pdm run a folder that "
        "`pdm run course start` made"
    )


def add_model(
    parser: argparse.ArgumentParser, default: str | None = "tiny", default_text: str | None = None
) -> None:
    """`default_text` describes a default that the command computes."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", type=nonblank_text, default=default, metavar="NAME",
        help="tiny (built in), a shortcut such as qwen2-0.5b or qwen3-0.6b, a name on the Hugging Face hub, "
        "a folder, or random:SHORTCUT: the same architecture with random weights "
        f"(default: {default_text or default})",
    )  # fmt: skip
    group.add_argument(
        "--offline", action="store_true", default=None,
        help="do not use the network; fail if the model is not on this machine",
    )  # fmt: skip


def add_solution(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("implementation")
    group.add_argument(
        "--solution", type=solution, metavar="{tiny_llm,mlx,FOLDER}", default="tiny_llm",
        help="tiny_llm: this project; mlx: the model and generation loop of mlx-lm; with pdm run also a "
        "folder that `pdm run course start` made: your code (default: %(default)s)",
    )  # fmt: skip
    add_loader(group, LOADERS.values())


def add_loader(group: argparse._ArgumentGroup, stages: Collection[Stage]) -> None:
    described = "; ".join(f"{stage.name}: {stage.summary}" for stage in stages)
    group.add_argument(
        "--loader", choices=[stage.name for stage in stages],
        help=f"a stage of the course, answered by its own loop. {described} (default: the model of "
        f"{DEFAULT_LOADER}, answered by the engine)",
    )  # fmt: skip


def add_machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("attention, device, data type and threads")
    group.add_argument(
        "--enable-flash-attn", action=argparse.BooleanOptionalAction,
        help="compute attention with FlashAttention, or with plain grouped attention, which keeps all scores "
        "in memory (default: FlashAttention where the loader has it; on a Mac's GPU, MLX's attention until "
        "`pdm run check-mac` has shown ours to be faster on such a chip)",
    )  # fmt: skip
    group.add_argument(
        "--device", choices=DEVICES,
        help="device to compute on (default: the GPU if MLX has one, else the CPU)",
    )  # fmt: skip
    group.add_argument(
        "--dtype", choices=["auto", *DTYPES], default="auto",
        help="type of the activations; auto is bfloat16 on CUDA and on CPUs with bfloat16 instructions, "
        "float16 on Metal, else float32 (default: %(default)s)",
    )  # fmt: skip
    add_threads(group)


def add_threads(container: argparse._ActionsContainer) -> None:
    """The option that `cli.main` applies before a command runs; the native module knows what it may be."""
    container.add_argument(
        "--threads", metavar="N[,N]",
        help="threads of the CPU kernels: 16, or 16,8 for 16 in prompts and 8 in decoding "
        "(default: TINY_LLM_THREADS, else the physical cores that this process may use)",
    )  # fmt: skip


def add_ranks(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("one model in several processes")
    group.add_argument(
        "--tensor-parallel", type=integer(1), metavar="N",
        help="divide every matrix among N processes, one for each GPU or machine (default: 1)",
    )  # fmt: skip
    group.add_argument(
        "--pipeline-parallel", type=integer(1), metavar="N",
        help="divide the layers among N processes, for machines with little memory; not on several GPUs",
    )  # fmt: skip
    group.add_argument(
        "--hostfile", type=Path, metavar="FILE",
        help="the machines of these processes, in the format of mlx.launch, this one first; ssh starts the "
        "others (default: all on this machine)",
    )  # fmt: skip


def add_conversation(parser: argparse.ArgumentParser) -> None:
    """What the chat template gets besides the question."""
    group = parser.add_argument_group("conversation")
    group.add_argument(
        "--system", type=text, default=SYSTEM, metavar="TEXT",
        help="system message for the model; '' sends none (default: %(default)r)",
    )  # fmt: skip
    group.add_argument(
        "--enable-thinking", action="store_true",
        help="let a model that supports it, such as Qwen3, write its reasoning before the answer",
    )  # fmt: skip


def add_raw(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--raw", action="store_true",
        help="continue the text as it is, without a chat template: for models that are not trained to chat",
    )  # fmt: skip


def add_batch_invariant(group: argparse._ArgumentGroup, others: str) -> None:
    group.add_argument(
        "--batch-invariant", action="store_true",
        help=f"the bits of an answer do not depend on the other {others}, at any type; slower, and CPU only",
    )  # fmt: skip


def add_answer(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("answer")
    group.add_argument(
        "--max-tokens", type=integer_in(MAX_TOKENS), metavar="N",
        help="maximum number of new tokens; a token is about four characters "
        f"(default: {DEFAULT_MAX_TOKENS}, or what is left of the context)",
    )  # fmt: skip
    group.add_argument(
        "--stop", type=stop_string, action="append", default=[], metavar="TEXT",
        help="end the answer before this text; may be given several times",
    )  # fmt: skip
    group.add_argument(
        "--draft-model", type=nonblank_text, metavar="NAME",
        help="speculative decoding: this small model with the same vocabulary proposes tokens, --model "
        "verifies them",
    )  # fmt: skip
    group.add_argument(
        "--sampler-temp", type=number_in(TEMP), default=0.0, metavar="T",
        help="sampling temperature: 0 always takes the most probable token, 1 samples from the model's "
        "probabilities, higher is more random (default: 0)",
    )  # fmt: skip
    group.add_argument(  # 0, which is all tokens for `Sampling`, would be an option without effect
        "--sampler-top-k", type=integer(1), metavar="K", help="sample only from the K most probable tokens"
    )
    group.add_argument(
        "--sampler-top-p", type=number_in(TOP_P), metavar="P",
        help="sample only from the most probable tokens that together have probability P",
    )  # fmt: skip
    group.add_argument(
        "--sampler-min-p", type=number_in(MIN_P), metavar="P",
        help="sample only from tokens at least P times as probable as the most probable one",
    )  # fmt: skip
    group.add_argument(
        "--seed", type=integer_in(SEED), metavar="N",
        help="seed of the random numbers: with the same seed, sampling gives the same answer",
    )  # fmt: skip
    group.add_argument(
        "--repetition-penalty", type=number_in(REPETITION_PENALTY), metavar="R",
        help="penalty for tokens that already occurred; above 1 makes them less probable",
    )  # fmt: skip
    for name, what in (("presence", "each token"), ("frequency", "each occurrence of a token")):
        group.add_argument(
            f"--{name}-penalty", type=number_in(COUNT_PENALTY), default=0.0, metavar="X",
            help=f"penalty for {what} in the answer so far; above 0 makes repetition less probable "
            "(default: 0)",
        )  # fmt: skip
    group.add_argument(
        "--min-tokens", type=integer_in(MIN_TOKENS), default=0, metavar="N",
        help="minimum number of new tokens: before, neither an end token nor --stop ends the answer "
        "(default: 0)",
    )  # fmt: skip
    group.add_argument(
        "--ignore-eos", action="store_true",
        help="end tokens do not end the answer, only --stop and the maximum length do",
    )  # fmt: skip


def add_response_format(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("form of the answer (needs llguidance: pip install 'tiny-llm[serve]')")
    either = group.add_mutually_exclusive_group()
    either.add_argument(
        "--json-schema", type=Path, metavar="FILE",
        help="the answer is JSON that is valid by the JSON schema in this file",
    )  # fmt: skip
    either.add_argument(
        "--regex", type=text, metavar="PATTERN", help="the whole answer matches this regular expression"
    )


def add_json(
    parser: argparse.ArgumentParser, what: str = "print one JSON object and nothing else, for scripts"
) -> None:
    parser.add_argument("--json", action="store_true", help=what)
