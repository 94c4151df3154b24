"""`tiny-llm bench` and `pdm bench`: the prefill and decode speed of a model on this machine."""

import argparse
import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import mlx.core as mx

from tiny_llm.cli import arguments
from tiny_llm.cli.backends import ATTENTION, settings_line
from tiny_llm.cli.build_backend import (
    build_stage,
    choose_flash,
    describe,
    flash_flag,
    group_of,
    refuse_with_mlx_lm,
)
from tiny_llm.cli.device import check_kernels, choose_device, choose_dtype
from tiny_llm.cli.exit_codes import Failure, Refusal, naming_flags, print_stderr
from tiny_llm.cli.loaders import DEFAULT_LOADER, LOADERS, WITH_FLASH_SWITCH
from tiny_llm.cli.mlx_lm_backend import check_mlx_lm, mlx_lm_model
from tiny_llm.cli.output_files import check_writable, output_file, svg_file, write_whole
from tiny_llm.cli.progress import ProgressBar
from tiny_llm.distributed.launch import Group
from tiny_llm.generation.loaded import LoadedModel, load_llm
from tiny_llm.loading import Checkpoint, LoadError, ModelConfig, Progress, find_folder, load
from tiny_llm.runtime.installation import check_installation

from ..benchmark.backends import BenchBackend, engine_backend, mlx_lm_backend, tiny_llm_backend
from ..benchmark.pictures import NoPlottingLibrary, check_plotting, rates_picture
from ..benchmark.rates import TOLERANCE, largest_difference, measure
from ..benchmark.report import results, table
from ..benchmark.requests import BenchRequest, Sizes, random_requests
from . import bench_serve

DESCRIPTION = """Measures speed with prompts of random tokens and greedy answers of random lengths, one
request at a time. Speed does not depend on what the tokens mean, so random weights measure the same as real
ones."""
DEFAULT_MODEL = "qwen2-0.5b"
MLX_LM = "mlx-lm"
SIZES = Sizes(num_seqs=16, min_input_len=64, max_input_len=256, min_output_len=64, max_output_len=256)
# On a CPU MLX uses one core: a second or more per token.
SMALL_SIZES = Sizes(num_seqs=2, min_input_len=16, max_input_len=32, min_output_len=4, max_output_len=8)


class Kinds(argparse._SubParsersAction):  # type: ignore[type-arg] # of any parser
    """Refuses options before `serve`: it has options of its own, so they would have no effect."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *rest: Any) -> None:
        for action in parser._actions:
            if getattr(namespace, action.dest, action.default) != action.default:
                parser.error(f"{action.option_strings[0]}: has no effect before serve; write it after")
        super().__call__(parser, namespace, *rest)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(
        title="other kinds of measurement", metavar="KIND", action=Kinds, help="with options of its own"
    )
    kind = kinds.add_parser("serve", help=bench_serve.SUMMARY, description=bench_serve.DESCRIPTION)
    bench_serve.add_arguments(kind)
    kind.set_defaults(run=bench_serve.run, program=kind.prog)
    arguments.add_model(parser, None, f"{DEFAULT_MODEL} if on this machine, else random:{DEFAULT_MODEL}")
    arguments.add_solution(parser)
    arguments.add_machine(parser)
    arguments.add_ranks(parser)
    group = parser.add_argument_group("workload")
    for name, what in (
        ("num_seqs", "number of requests"),
        ("min_input_len", "minimum prompt length, in tokens"),
        ("max_input_len", "maximum prompt length, in tokens"),
        ("min_output_len", "minimum answer length, in tokens"),
        ("max_output_len", "maximum answer length, in tokens"),
    ):
        few = getattr(SMALL_SIZES, name)
        group.add_argument(
            f"--{name.replace('_', '-')}", type=arguments.integer(1), metavar="N",
            help=f"{what} (default: {getattr(SIZES, name)}, or {few} if mlx-lm runs on a CPU)",
        )  # fmt: skip
    group.add_argument(
        "--seed", type=arguments.integer(0), default=0, metavar="N",
        help="seed of the random lengths and tokens (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--warmup", type=arguments.integer(0), default=1, metavar="N",
        help="number of requests before timing starts (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--compare", nargs="?", const="flash", choices=("flash", "mlx"),
        help="run every request in turn with and without FlashAttention and report the ratios; with mlx, "
        "also run mlx-lm (default if given without a value: flash)",
    )  # fmt: skip
    parser.set_defaults(origin=lambda: {"measured": datetime.now(UTC).isoformat(timespec="seconds")})
    group = parser.add_argument_group("output")
    group.add_argument("--json", type=output_file, metavar="FILE", help="write all measurements to this file")
    group.add_argument(
        "--plot",
        type=svg_file,
        metavar="FILE.svg",
        help="write a bar chart of the speeds (needs tiny-llm[tools])",
    )


def run(options: argparse.Namespace) -> int:
    """Print the table; fails if two backends disagree."""
    check(options)
    check_writable({"--json": options.json, "--plot": options.plot})
    if options.plot:
        require_plotting()
    if options.solution != "mlx":
        check_kernels()
    if "mlx" in (options.solution, options.compare):
        check_mlx_lm()
    device = choose_device(options.device)
    with_mlx = "mlx" in (options.solution, options.compare)
    dtype = choose_dtype(options.dtype, device, mlx_lm=with_mlx)
    sizes = choose_sizes(options, SMALL_SIZES if with_mlx and device == "cpu" else SIZES)
    name = model_name(options)
    group = group_of(options)
    with ProgressBar() as progress:
        if group is None:
            checkpoint = load(name, offline=options.offline, progress=progress)
            requests = make_requests(checkpoint.config, checkpoint.tokenizer, sizes, options.seed)
            backends = make_backends(options, checkpoint, dtype, progress)
        else:
            llm = load_on_ranks(options, name, dtype, group, progress)
            requests = make_requests(llm.model.mlx_model.args, llm.tokenizer, sizes, options.seed)
            backends = [engine_backend(f"{group.size} ranks", llm)]
        progress("comparing the logits", 0, None)
        differences = largest_difference(backends, requests[0])
        for other, difference in differences.items():
            if not difference <= TOLERANCE[dtype]:
                raise Failure(
                    f"{backends[0].name} and {other} do not agree: their logits differ by {difference:.1%} "
                    f"of the largest, expected at most {TOLERANCE[dtype]:.1%}; nothing was measured"
                )
        mx.reset_peak_memory()
        runs = measure(backends, requests, options.warmup, lambda i, n: progress("measuring", i, n))
    description = describe(options, device, dtype) | {"model": name}
    if options.solution != "mlx":
        description["loader"] = options.loader or DEFAULT_LOADER
        if not options.compare:  # which measures both
            loader = LOADERS[description["loader"]]
            description["flash_attention"] = choose_flash(loader, options.enable_flash_attn)
    record = {
        "benchmark": "model",
        **options.origin(),
        "installation": check_installation(),
        **description,
        "setting": settings_line(description),
        "sizes": asdict(sizes),
        "seed": options.seed,
        "warmup": options.warmup,
        "peak_memory_bytes": mx.get_peak_memory(),
        **results(runs, differences),
    }
    print(table(record))
    if options.json:
        write_whole(options.json, json.dumps(record, indent=1) + "\n")
    if options.plot:
        write_whole(options.plot, rates_picture(record))
    return 0


def check(options: argparse.Namespace) -> None:
    """Refuse flags that contradict each other."""
    if options.solution == "mlx":
        refuse_with_mlx_lm(options, "loader", "enable_flash_attn", "threads", *arguments.RANKS)
        if options.compare:
            raise Refusal("--compare: measures tiny_llm; leave out --solution mlx, and use --compare mlx")
    if options.compare and options.enable_flash_attn is not None:
        given = flash_flag(options.enable_flash_attn)
        raise Refusal(f"{given}: --compare measures with and without it; leave out one of them")
    if options.loader or options.compare:
        group_of(options, f"cannot be combined with {'--compare' if options.compare else '--loader'}")
    if options.compare == "flash" and not LOADERS[options.loader or DEFAULT_LOADER].has_flash_switch:
        raise Refusal(
            f"--compare: {options.loader} has one kind of attention; use {WITH_FLASH_SWITCH}, which has both"
        )


def choose_sizes(options: argparse.Namespace, defaults: Sizes) -> Sizes:
    """The sizes from the flags, with defaults for the rest."""
    given = {name: getattr(options, name) for name in asdict(defaults)}
    sizes = replace(defaults, **{name: value for name, value in given.items() if value is not None})
    for kind in ("input", "output"):
        low, high = (getattr(sizes, f"{end}_{kind}_len") for end in ("min", "max"))
        if low > high:
            raise Refusal(f"--min-{kind}-len: got {low}, expected at most --max-{kind}-len, {high}")
    return sizes


def model_name(options: argparse.Namespace) -> str:
    """The model of the flags. The default is never downloaded: random weights run at the same speed."""
    name: str | None = options.model
    if name is None:
        name = DEFAULT_MODEL
        try:
            find_folder(name, offline=True)
        except LoadError:
            name = f"random:{DEFAULT_MODEL}"
            sentence = (
                f"{DEFAULT_MODEL} is not on this machine, so random weights of its shape are measured; "
                f"--model {DEFAULT_MODEL} downloads it, --model tiny is quicker"
            )
            print_stderr(f"{options.program}: {sentence}")
    return name


def make_requests(config: ModelConfig, tokenizer: Any, sizes: Sizes, seed: int) -> list[BenchRequest]:
    context = config.max_position_embeddings
    longest = sizes.max_input_len + sizes.max_output_len
    if longest > context:
        raise Refusal(
            f"--max-input-len and --max-output-len: got {longest} tokens together, "
            f"expected at most the context of {context}"
        )
    return random_requests(sizes, config.vocab_size, tokenizer.eos_token_ids, seed)


def require_plotting() -> None:
    try:
        check_plotting()
    except NoPlottingLibrary as error:
        raise Failure(f"--plot: {error}") from error


def load_on_ranks(
    options: argparse.Namespace, name: str, dtype: mx.Dtype, group: Group, progress: Progress
) -> LoadedModel:
    """The model that this process and others have a share of."""
    flash = choose_flash(LOADERS[DEFAULT_LOADER], options.enable_flash_attn)
    device, offline = choose_device(options.device), options.offline
    with naming_flags(*arguments.RANKS):
        return load_llm(
            name,
            dtype,
            device,
            group=group,
            threads=options.threads,
            offline=offline,
            progress=progress,
            enable_flash_attn=flash,
        )


def make_backends(
    options: argparse.Namespace, checkpoint: Checkpoint, dtype: mx.Dtype, progress: Progress
) -> list[BenchBackend]:
    """The backends to measure, on one set of weights; the first is the one the others are compared with."""
    if options.solution == "mlx":
        return [mlx_lm_backend(MLX_LM, mlx_lm_model(checkpoint.mlx_model, dtype, progress))]
    loader = LOADERS[options.loader or DEFAULT_LOADER]
    both = options.compare is not None and loader.has_flash_switch
    backends = []
    for flash in (True, False) if both else (choose_flash(loader, options.enable_flash_attn),):
        name = options.loader if flash is None else ATTENTION[flash]
        backends.append(tiny_llm_backend(name, build_stage(checkpoint, loader, flash, dtype)))
    if options.compare == "mlx":
        backends.append(mlx_lm_backend(MLX_LM, mlx_lm_model(checkpoint.mlx_model, dtype, progress)))
    return backends
