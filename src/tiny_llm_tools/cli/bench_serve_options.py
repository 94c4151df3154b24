"""The options of `tiny-llm bench serve`."""

import argparse
import math
from pathlib import Path

from tiny_llm.cli import arguments
from tiny_llm.cli.output_files import output_file
from tiny_llm.cli.serve import KEY_VARIABLE
from tiny_llm.errors import ArgumentError

from ..benchmark.serving.client import ROUTES
from ..benchmark.serving.http import Address
from ..benchmark.serving.metrics import GOODPUT_METRICS, METRICS

OWN_MODEL = "tiny"
PLOT_KINDS = (".svg", ".png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_server(parser)
    _add_workload(parser)
    _add_output(parser)


def _add_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument(
        "--base-url", type=base_url, metavar="URL",
        help="a server that runs, such as http://127.0.0.1:8000; /v1 at its end makes no difference "
        "(default: start `tiny-llm serve`, and end it afterwards)",
    )  # fmt: skip
    group.add_argument(
        "--model", type=arguments.nonblank_text, metavar="NAME",
        help="with --base-url, the name in requests (default: the first of the server's); else the model to "
        f"serve, as in generate (default: {OWN_MODEL})",
    )  # fmt: skip
    group.add_argument(
        "--tokenizer", type=arguments.nonblank_text, metavar="NAME",
        help="the model on this machine with whose tokens prompts are made (default: --model, if it is on "
        f"this machine, else {OWN_MODEL})",
    )  # fmt: skip
    group.add_argument(
        "--api-key-file", type=Path, metavar="FILE",
        help=f"a file with the key for --base-url (default: the key in {KEY_VARIABLE}, if set)",
    )  # fmt: skip
    group.add_argument(
        "--endpoint", choices=ROUTES, default="completions",
        help="completions sends token ids to /v1/completions, chat sends text to /v1/chat/completions "
        "(default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--send-text", action="store_true",
        help="send completions as text too, for servers that do not take token ids",
    )  # fmt: skip
    group.add_argument(
        "--ignore-eos", action=argparse.BooleanOptionalAction, default=True,
        help="answers have their full length; --no-ignore-eos for servers without this field (default: on)",
    )  # fmt: skip
    group.add_argument(
        "--timeout", type=arguments.number_where(lambda x: x > 0, "above 0"), default=600.0,
        metavar="SECONDS",
        help="time for a whole answer, after which it has failed (default: %(default)g)",
    )  # fmt: skip
    arguments.add_threads(group)


def _add_workload(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("requests")
    number = arguments.integer
    for name, minimum, default, text in (
        ("--num-prompts", 1, 32, "number of requests"),
        ("--random-input-len", 1, 128, "tokens of a prompt, without the prefix"),
        ("--random-output-len", 1, 64, "tokens of an answer"),
        ("--random-prefix-len", 0, 0, "tokens that all prompts begin with"),
        ("--num-warmups", 0, 1, "requests before the measurement, one after the other"),
        ("--seed", 0, 0, "seed of prompts, lengths and arrivals"),
    ):
        group.add_argument(
            name, type=number(minimum), default=default, metavar="N", help=f"{text} (default: {default})"
        )
    group.add_argument(
        "--random-range-ratio", type=arguments.number_where(lambda x: 0 <= x < 1, "from 0 to below 1"),
        default=0.0, metavar="R",
        help="lengths are between 1 - R and 1 + R times those above (default: %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--request-rate", type=request_rate, nargs="+", default=[math.inf], metavar="R",
        help="requests per second, at random times; inf sends all at once; several rates are measured one "
        "after the other (default: inf)",
    )  # fmt: skip
    group.add_argument(
        "--burstiness", type=arguments.number_where(lambda x: x > 0, "above 0"), metavar="B",
        help="shape of the gamma distribution of the times between requests: 1 is a Poisson process, less "
        "has more bursts (default: 1)",
    )  # fmt: skip
    group.add_argument(
        "--max-concurrency", type=number(1), metavar="N",
        help="most requests in flight; the others wait, and that is not part of their times",
    )  # fmt: skip


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("figures and files")
    group.add_argument(
        "--goodput", type=service_level, nargs="+", default=[], metavar="NAME:MS",
        help="also count the requests within these milliseconds, such as ttft:200 tpot:50 e2el:3000",
    )  # fmt: skip
    group.add_argument(
        "--percentile-metrics", type=metric_names, default=list(METRICS), metavar="NAMES",
        help=f"latencies to show, separated by commas (default: {','.join(METRICS)})",
    )  # fmt: skip
    group.add_argument(
        "--metric-percentiles", type=percentile_list, default=[99.0], metavar="P,P",
        help="percentiles to show (default: 99)",
    )  # fmt: skip
    group.add_argument("--result", type=output_file, metavar="FILE", help="write all figures as JSON")
    group.add_argument(
        "--plot", type=plot_file, metavar="FILE",
        help="draw latency over throughput for several request rates, as .svg or .png "
        "(needs tiny-llm[tools])",
    )  # fmt: skip


def base_url(text: str) -> str:
    """An argparse type."""
    try:
        Address.of(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(error.reason) from error
    return text


def request_rate(text: str) -> float:
    """An argparse type: requests per second, or inf."""
    return math.inf if text == "inf" else arguments.number_where(lambda x: x > 0, "above 0, or inf")(text)


def service_level(text: str) -> tuple[str, float]:
    """An argparse type: a metric of a request and its most milliseconds."""
    name, _, limit = text.partition(":")
    if name not in GOODPUT_METRICS:
        expected = ", ".join(f"{each}:MS" for each in GOODPUT_METRICS)
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {expected}")
    return name, arguments.number_where(lambda x: x > 0, f"of milliseconds above 0 after {name}:")(limit)


def metric_names(text: str) -> list[str]:
    """An argparse type."""
    names = list(dict.fromkeys(text.split(",")))
    if not set(names) <= METRICS.keys():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected some of {','.join(METRICS)}")
    return names


def percentile_list(text: str) -> list[float]:
    """An argparse type."""
    each = arguments.number_where(lambda x: 0 < x <= 100, "above 0, at most 100")
    return sorted({each(part) for part in text.split(",")})


def plot_file(name: str) -> Path:
    """An argparse type."""
    if not name.endswith(PLOT_KINDS):
        raise argparse.ArgumentTypeError(
            f"got {name!r}, expected a name that ends in {' or '.join(PLOT_KINDS)}"
        )
    return output_file(name)
