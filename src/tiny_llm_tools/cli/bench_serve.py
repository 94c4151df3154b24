"""`tiny-llm bench serve`: load for a server over HTTP, and the figures of `vllm bench serve`."""

import argparse
import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tiny_llm.cli.exit_codes import INTERRUPTED, Failure, Refusal, print_stderr
from tiny_llm.cli.output_files import check_writable, write_whole
from tiny_llm.cli.progress import ProgressBar
from tiny_llm.cli.serve import read_keys
from tiny_llm.loading import LoadError, load_tokenizer
from tiny_llm.runtime.installation import check_installation

from ..benchmark.pictures import NoPlottingLibrary, check_plotting
from ..benchmark.serving.client import Client
from ..benchmark.serving.http import Site, reason_of
from ..benchmark.serving.load import LoadRun, run_load
from ..benchmark.serving.metrics import Record, failures, results
from ..benchmark.serving.probe import ServerError, list_models, warm_up
from ..benchmark.serving.process import ServerProcess, own_command
from ..benchmark.serving.report import picture, rate_text, table
from ..benchmark.serving.workload import NoWords, Words, Workload, arrivals, requests
from .bench_serve_options import OWN_MODEL, add_arguments

__all__ = ["DESCRIPTION", "SUMMARY", "add_arguments", "run"]

SUMMARY = "measure a server over HTTP"
DESCRIPTION = """Sends requests with random prompts to a server that speaks OpenAI's interface, and measures
throughput and latencies. Without --base-url it starts `tiny-llm serve`, and ends it afterwards."""
WARM_UP_PART, WARM_UP_TOKENS = "warm-up", 4


def run(options: argparse.Namespace) -> int:
    """Print a table; fails if no request was completed. Ctrl-C shows what was measured until then."""
    workload = check(options)
    check_writable({"--result": options.result, "--plot": options.plot})
    if options.plot:
        try:
            check_plotting()
        except NoPlottingLibrary as error:
            raise Failure(f"--plot: {error}") from error
    keys = read_keys(options.api_key_file)
    installation = check_installation(speed=False)
    try:
        with ProgressBar() as progress, served(options, progress) as url:
            client, words = connect(options, find_site(url, keys), workload)
            progress("warming up", 0, None)
            few = Workload(options.num_warmups, workload.input_len, WARM_UP_TOKENS)
            warm_up(client, make_requests(options, few, words, WARM_UP_PART))
            runs = measure(options, client, workload, words, progress)
    except (ServerError, NoWords) as error:
        raise Failure(str(error)) from error
    return show(options, client, workload, installation, runs)


def check(options: argparse.Namespace) -> Workload:
    """Refuse flags that contradict each other."""
    if options.base_url is None and options.api_key_file is not None:
        raise Refusal("--api-key-file: has no effect without --base-url: our own server needs no key")
    if options.base_url is not None and options.threads is not None:
        raise Refusal("--threads: has no effect with --base-url: that server has chosen its own")
    if options.burstiness is not None and all(map(math.isinf, options.request_rate)):
        raise Refusal("--burstiness: has no effect at --request-rate inf, which sends all requests at once")
    if len(set(options.request_rate)) < len(options.request_rate):
        raise Refusal("--request-rate: got a rate twice")
    if options.plot and len(options.request_rate) < 2:
        raise Refusal("--plot: needs at least two numbers after --request-rate")
    if options.send_text and options.endpoint == "chat":
        raise Refusal("--send-text: has no effect with --endpoint chat, which always sends text")
    names = [name for name, _ in options.goodput]
    if len(set(names)) < len(names):
        raise Refusal("--goodput: got a name twice")
    return Workload(
        options.num_prompts,
        options.random_input_len,
        options.random_output_len,
        options.random_range_ratio,
        options.random_prefix_len,
    )


@contextmanager
def served(options: argparse.Namespace, progress: ProgressBar) -> Iterator[str]:
    """The URL of the server: the given one, or our own, which ends after the block."""
    if options.base_url is not None:
        yield options.base_url
        return
    progress("starting the server", 0, None)
    threads = [] if options.threads is None else ["--threads", options.threads]
    with ServerProcess(own_command(["--model", options.model or OWN_MODEL, *threads])) as server:
        yield server.url


def find_site(url: str, keys: tuple[str, ...]) -> Site:
    try:
        return Site.at(url, keys[0] if keys else None)
    except OSError as error:
        raise Failure(f"--base-url: {url}: {reason_of(error)}") from error


def connect(options: argparse.Namespace, site: Site, workload: Workload) -> tuple[Client, Words]:
    """The client for the chosen model, and the tokens of its prompts."""
    cards = list_models(site)
    names = [card["id"] for card in cards]
    model = names[0] if options.base_url is None else options.model or next(iter(names), None)
    if model is None:
        raise Refusal("--model: is needed, because the server does not list its models")
    if names and model not in names:
        raise Refusal(f"--model: got {model}, but the server has {', '.join(names)}")
    card: dict[str, Any] = next((card for card in cards if card["id"] == model), {})
    context = card.get("max_model_len")
    if isinstance(context, int) and workload.longest > context:
        raise Refusal(
            f"--random-input-len, --random-prefix-len and --random-output-len: got up to {workload.longest} "
            f"tokens together, expected at most the context of {context}"
        )
    words = Words(find_tokenizer(options, model))
    return Client(site, model, options.endpoint, options.ignore_eos, options.timeout), words


def find_tokenizer(options: argparse.Namespace, served_model: str) -> Any:
    """A tokenizer of this machine: nothing is downloaded for prompts."""
    if options.tokenizer is not None:
        try:
            return load_tokenizer(options.tokenizer, offline=True)
        except LoadError as error:
            raise Refusal(f"--tokenizer: {error}") from error
    try:
        return load_tokenizer(options.model or served_model, offline=True)
    except LoadError:
        print_stderr(
            f"{options.program}: {served_model} is not on this machine, so prompts are made of the tokens of "
            f"{OWN_MODEL}; --tokenizer NAME chooses others"
        )
        return load_tokenizer(OWN_MODEL)


def make_requests(options: argparse.Namespace, workload: Workload, words: Words, part: str) -> list[Any]:
    as_text = options.send_text or options.endpoint == "chat"
    return requests(workload, words, as_text, options.seed, part)


def measure(
    options: argparse.Namespace, client: Client, workload: Workload, words: Words, progress: ProgressBar
) -> dict[float, LoadRun]:
    """A run for each request rate, until one is interrupted. Each has prompts of its own."""
    runs: dict[float, LoadRun] = {}
    for rate in options.request_rate:
        several = len(options.request_rate) > 1
        name = f"measuring, {rate_text(rate)} requests per second" if several else "measuring"
        sent = make_requests(options, workload, words, rate_text(rate))
        times = arrivals(len(sent), rate, options.burstiness or 1.0, options.seed)
        report = partial(progress, name)
        runs[rate] = asyncio.run(run_load(client, sent, times, options.max_concurrency, report))
        if runs[rate].interrupted:
            break
    return runs


def show(
    options: argparse.Namespace,
    client: Client,
    workload: Workload,
    installation: Record,
    runs: dict[float, LoadRun],
) -> int:
    """Print and write the figures; the exit code."""
    records = [
        {
            **describe(options, client, rate),
            **results(run, dict(options.goodput), options.percentile_metrics, options.metric_percentiles),
            "errors": failures(run.answers),
            "interrupted": run.interrupted,
            "installation": installation,
        }
        for rate, run in runs.items()
    ]
    title = f"{client.model} at {client.site.address}, {options.endpoint}"
    inputs, outputs = workload.prefix_len + workload.input_len, workload.output_len
    print(f"{title}\n{workload.num_prompts} requests, {inputs} tokens in, {outputs} out\n\n{table(records)}")
    answers = [answer for run in runs.values() for answer in run.answers if answer.failure is None]
    if counted := sum(not answer.has_usage for answer in answers):
        print(f"{counted} answers came without usage: their tokens are counted as events")
    if options.result:
        content = records[0] if len(options.request_rate) == 1 else records
        write_whole(options.result, json.dumps(content, indent=1) + "\n")
    if options.plot and answers:
        write_whole(options.plot, picture(records, title, options.plot.suffix.removeprefix(".")))
    if any(run.interrupted for run in runs.values()):
        print_stderr(f"{options.program}: stopped")
        return INTERRUPTED
    if not answers:
        raise Failure("no request was completed; the lines above have the reasons")
    return 0


def describe(options: argparse.Namespace, client: Client, rate: float) -> Record:
    """What identifies a run, as far as possible under vLLM's names."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "backend": "openai-chat" if options.endpoint == "chat" else "openai",
        "base_url": str(client.site.address),
        "model_id": client.model,
        "num_prompts": options.num_prompts,
        "request_rate": "inf" if math.isinf(rate) else rate,
        "burstiness": options.burstiness or 1.0,
        "max_concurrency": options.max_concurrency,
        "random_input_len": options.random_input_len,
        "random_output_len": options.random_output_len,
        "random_range_ratio": options.random_range_ratio,
        "random_prefix_len": options.random_prefix_len,
        "seed": options.seed,
        "ignore_eos": options.ignore_eos,
        "goodput": dict(options.goodput),
    }
