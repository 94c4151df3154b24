"""`tiny-llm serve`: answer the requests of OpenAI's, Anthropic's and Ollama's clients over HTTP."""

import argparse
import asyncio
import errno
import json
import os
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from ..engine import Engine, EngineRequest
from ..errors import NoChatTemplate
from ..llm import LLM
from ..loading.progress import Progress
from ..sampling.params import Sampling
from ..sampling.ranges import Range
from ..server.settings import LOCAL_HOSTS, Settings
from . import arguments
from .build_backend import group_of
from .exit_codes import Failure, Refusal, flag, naming_flags, optional_packages, print_stderr
from .progress import ProgressBar

DESCRIPTION = """Serve models over HTTP, with the interfaces of OpenAI, Anthropic and Ollama. The first Ctrl-C
or SIGTERM lets the requests in flight finish, the second ends the program at once."""
# Options of `Engine`; the sizes have their minimum, and what they are.
SIZES = {
    "max_context": (2, "maximum number of tokens of prompt and answer together (default: the model's)"),
    "step_tokens": (1, "maximum number of tokens in a step; fewer shorten the wait of running requests"),
    "max_running": (1, "maximum number of requests in a step"),
    "max_waiting": (1, "maximum number of requests in the queue; more are answered with 429"),
}
ENGINE_OPTIONS = ("kv_memory", *SIZES, "draft_tokens", "batch_invariant")
WARM_UP = "Hello"
KEY_VARIABLE = "TINY_LLM_API_KEY"
KEY = re.compile(r"[!-~]+")  # what a header can carry
DEFAULTS = Settings()

MakeEngine = Callable[[str, argparse.Namespace, Progress], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    models = parser.add_argument_group("models")
    models.add_argument(
        "--model", type=arguments.nonblank_text, action="append", metavar="NAME", dest="models",
        help="as in generate; may be given several times: requests choose by name, the first is the default "
        "(default: tiny)",
    )  # fmt: skip
    models.add_argument(
        "--offline", action="store_true", default=None,
        help="do not use the network; fail if a model is not on this machine",
    )  # fmt: skip
    arguments.add_threads(models)
    arguments.add_ranks(parser)
    _add_engine(parser)
    _add_network(parser)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("memory and batches, for each model")
    group.add_argument(
        "--kv-memory", type=arguments.size, metavar="SIZE",
        help="memory for keys and values, such as 512M or 4G (default: what fits this machine)",
    )  # fmt: skip
    for name, (minimum, text) in SIZES.items():
        group.add_argument(flag(name), type=arguments.integer(minimum), metavar="N", help=text)
    group.add_argument(
        "--draft-model", type=arguments.nonblank_text, metavar="NAME",
        help="a small model with the same vocabulary that drafts tokens, which the model verifies",
    )  # fmt: skip
    group.add_argument(
        "--draft-tokens", type=arguments.integer(1), metavar="N",
        help="maximum number of drafts of a request in a step",
    )  # fmt: skip
    arguments.add_batch_invariant(group, "requests")


def _add_network(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("network and keys")
    group.add_argument(
        "--host", type=arguments.nonblank_text, default="127.0.0.1", metavar="ADDRESS",
        help="address to listen at; 0.0.0.0 is every network of this machine (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--port", type=arguments.integer_in(Range(0, 65535)), default=8000, metavar="N",
        help="0 takes a free one (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--api-key-file", type=Path, metavar="FILE",
        help="a file with the keys that open the server, one on each line "
        f"(default: the key in {KEY_VARIABLE}, else none is needed)",
    )  # fmt: skip
    group.add_argument("--open-metrics", action="store_true", help="answer /metrics without a key")
    group.add_argument(
        "--allowed-host", action="append", default=[], type=arguments.nonblank_text, metavar="NAME",
        help=f"a name under which clients reach the server, besides {', '.join(LOCAL_HOSTS)} and --host; "
        "may be given several times; * allows every name",
    )  # fmt: skip
    group.add_argument(
        "--allowed-origin", action="append", default=[], type=arguments.origin, metavar="ORIGIN",
        help="the origin of a web page that may use the server from a browser, such as https://app.example; "
        "may be given several times; * allows every page (default: none)",
    )  # fmt: skip
    group.add_argument(
        "--request-timeout", type=arguments.number_in(Range(0, above=True)), metavar="SECONDS",
        help="time limit of each request, from its arrival to its last token (default: none)",
    )  # fmt: skip
    group.add_argument(
        "--drain-timeout", type=arguments.number_in(Range(0)),
        default=DEFAULTS.drain_timeout, metavar="SECONDS",
        help="time for requests in flight after Ctrl-C or SIGTERM; the rest is cut (default: %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="lines on standard error (default: text)",
    )


def run(options: argparse.Namespace) -> int:
    return run_with(make_engine, options)


def make_engine(model: str, options: argparse.Namespace, progress: Progress) -> Engine:
    """Load a model and start its engine, which then has computed something: no request is the first."""
    offline = bool(options.offline)

    def given(names: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(options, name)) is not None}

    with naming_flags(*arguments.RANKS, *ENGINE_OPTIONS, draft="--draft-model"):
        llm = LLM(model, offline=offline, progress=progress, **given((*arguments.RANKS, "threads")))
        sizes = given(ENGINE_OPTIONS)
        if options.draft_model is not None:
            sizes["draft"] = LLM(options.draft_model, offline=offline, progress=progress)
        engine = Engine(llm, **sizes)
    with ExitStack() as close_after_failure:
        close_after_failure.callback(engine.close)
        if options.max_context is not None and engine.context < options.max_context:
            room = f"{engine.context}, which is what fits into the memory for keys and values (--kv-memory)"
            raise Refusal(f"--max-context: got {options.max_context}, expected at most {room}")
        progress("Warming up", 0, None)
        warm_up(engine)
        close_after_failure.pop_all()
    pool = engine.pool
    memory = f"{pool.memory / 2**20:.0f} MiB for the keys and values of {pool.tokens} tokens"
    print_stderr(f"{model}: a context of {engine.context} tokens; {memory}")
    return engine


def warm_up(engine: Engine) -> None:
    """Answer a question: the first rendering and the first steps take longer than others."""
    tokenizer = engine.llm.tokenizer
    try:
        text = tokenizer.apply_chat_template([{"role": "user", "content": WARM_UP}])
    except NoChatTemplate:
        text = WARM_UP
    prompt = tokenizer.encode(text, add_special_tokens=False)
    for _ in engine.submit(EngineRequest(prompt_ids=prompt, sampling=Sampling(max_tokens=2))):
        pass


def run_with(make_engine: MakeEngine, options: argparse.Namespace) -> int:
    """Serve until a signal. `make_engine` loads a model and starts its engine; tests have another one.

    Options and the address are checked before anything is loaded.
    """
    names = model_names(options.models or ["tiny"])
    check_draft(options, len(names))
    group_of(options, "divides one --model only" if len(names) > 1 else None)
    settings = read_settings(options)
    with optional_packages("serve", "install the packages of the server:"):
        from ..server import logs, run
    with closing(bind(run.bind, options.host, options.port)) as bound, ExitStack() as engines_to_close:
        engines = {}
        with ProgressBar() as progress:
            for name, model in names.items():
                engine = make_engine(model, options, progress)
                engines[name] = engines_to_close.enter_context(engine)
        logs.set_up_logs(options.log_format)
        if not settings.api_keys and options.host not in LOCAL_HOSTS:
            print_stderr("warning: everybody who reaches this address can use the server: see --api-key-file")
        if not settings.api_keys and "*" in settings.allowed_origins:
            print_stderr("warning: every web page that is open here can use the server: see --api-key-file")
        ready = partial(announce, run.address_of(bound), list(names), bool(settings.api_keys))
        server = run.Server(engines, settings, on_start=ready)
        asyncio.run(server.serve(sockets=[bound]))
        if server.engine_failed:
            raise Failure("an engine has stopped after a fault; the lines above have the reason")
    return 0


def model_names(models: list[str]) -> dict[str, str]:
    """What to load for each name of a request: a folder has its own name, without those above it."""
    names: dict[str, str] = {}
    for model in models:
        name = Path(model).resolve().name if Path(model).is_dir() else model
        if name in names:
            raise Refusal(f"--model: {name} is given twice")
        names[name] = model
    return names


def check_draft(options: argparse.Namespace, models: int) -> None:
    """Refuse flags about drafts that have no effect, or no one meaning."""
    if options.draft_model is None and options.draft_tokens is not None:
        raise Refusal("--draft-tokens: has no effect without --draft-model")
    if options.draft_model is not None and models > 1:
        raise Refusal("--draft-model: drafts for one --model only")


def read_settings(options: argparse.Namespace) -> Settings:
    keys = read_keys(options.api_key_file)
    if options.open_metrics and not keys:
        raise Refusal("--open-metrics: has no effect without a key: see --api-key-file")
    return Settings(
        api_keys=keys,
        allowed_hosts=(*LOCAL_HOSTS, options.host, *options.allowed_host),
        allowed_origins=tuple(options.allowed_origin),
        open_metrics=options.open_metrics,
        request_timeout=options.request_timeout,
        drain_timeout=options.drain_timeout,
    )


def read_keys(file: Path | None) -> tuple[str, ...]:
    """The keys in the file or the environment; an empty or unusable one is refused, not ignored."""
    given = os.environ.get(KEY_VARIABLE)
    if file is None:
        return () if given is None else checked_keys(KEY_VARIABLE, [given])
    if given is not None:
        raise Refusal(f"--api-key-file: cannot be combined with {KEY_VARIABLE}")
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise Refusal(f"--api-key-file: {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Refusal(f"--api-key-file: {file}: expected ASCII characters") from error
    return checked_keys(f"--api-key-file: {file}", [line.strip() for line in lines if line.strip()])


def checked_keys(source: str, keys: list[str]) -> tuple[str, ...]:
    if not keys or not all(map(KEY.fullmatch, keys)):
        raise Refusal(f"{source}: expected keys of printable ASCII characters without spaces")
    return tuple(keys)


def bind(open_address: Callable[[str, int], socket.socket], host: str, number: int) -> socket.socket:
    try:
        return open_address(host, number)
    except socket.gaierror as error:
        expected = f"expected an address of this machine ({error.strerror})"
        raise Refusal(f"--host: got {host}, {expected}") from error
    except OSError as error:
        advice = "; 0 takes a free port" if error.errno == errno.EADDRINUSE else ""
        raise Failure(f"--port: cannot listen at {host}, port {number}: {error.strerror}{advice}") from error


def announce(address: str, names: list[str], with_key: bool) -> None:
    """Print the addresses for clients and for a browser, and a command to try."""
    question = {"model": names[0], "messages": [{"role": "user", "content": "What is FlashAttention?"}]}
    key = ' -H "Authorization: Bearer $KEY"' if with_key else ""
    print(f"Serving {', '.join(names)} at {address}/v1, and a page to chat at {address}/. Try:")
    print(
        f"curl {address}/v1/chat/completions{key} -H 'Content-Type: application/json' "
        f"-d '{json.dumps(question | {'temperature': 0})}'",
        flush=True,
    )
