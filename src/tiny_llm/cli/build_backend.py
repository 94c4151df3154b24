"""From parsed options to a backend: refuse contradictions, choose device and type, load the model."""

import argparse
from dataclasses import fields
from typing import Any

import mlx.core as mx

from ..checks.arrays import dtype_name
from ..course.model import build_model
from ..distributed.launch import Group, read_group
from ..errors import ArgumentError
from ..generation.loaded import load_llm
from ..loading import Checkpoint, load
from ..loading.progress import Progress
from ..runtime.gpu import AttentionChoice, default_attention
from ..sampling.grammar import Grammar
from ..sampling.params import Sampling
from .arguments import RANKS, SYSTEM
from .backends import Backend, CourseBackend, EngineBackend, OurBackend
from .device import check_kernels, choose_device, choose_dtype
from .exit_codes import Refusal, flag, naming_flags
from .loaders import DEFAULT_LOADER, LOADERS, WITH_CACHE, WITH_FLASH_SWITCH, Stage
from .mlx_lm_backend import MlxLmBackend, check_mlx_lm

# Parameters that change logits, which neither the course's draft model nor mlx-lm has.
LOGITS_FLAGS = ("repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens")
FORMAT_FLAGS = ("json_schema", "regex")
SAMPLING_FLAGS = ("sampler_top_k", "sampler_top_p", "sampler_min_p", "seed")


def read_sampling(options: argparse.Namespace) -> Sampling:
    """The Sampling of the flags; a flag without effect is refused."""
    if options.sampler_temp == 0:
        for name in SAMPLING_FLAGS:
            if getattr(options, name) is not None:
                raise Refusal(f"{flag(name)}: needs a --sampler-temp above 0: at 0 nothing is sampled")
    with naming_flags("stop", "min_tokens"):
        known = {field.name for field in fields(Sampling)}
        given = {name.removeprefix("sampler_"): value for name, value in vars(options).items()}
        sampling = Sampling(**{name: value for name, value in given.items() if name in known})
    for name in LOGITS_FLAGS:
        # The loop of the course that speculates is for plain logits.
        if getattr(options, name) and options.loader is not None and options.draft_model is not None:
            raise Refusal(f"{flag(name)}: cannot be combined with --loader and --draft-model")
        # mlx-lm gives its processors a part of the prompt only, so lengths and counts would be wrong.
        if getattr(options, name) and options.solution == "mlx" and name != "repetition_penalty":
            raise Refusal(f"{flag(name)}: cannot be combined with --solution mlx")
    return sampling


def read_grammar(options: argparse.Namespace) -> Grammar | None:
    """The grammar of --json-schema or --regex; a flag that contradicts it is refused."""
    given = next((name for name in FORMAT_FLAGS if getattr(options, name) is not None), None)
    if given is None:
        return None
    conflicts = {
        "--ignore-eos": options.ignore_eos,
        "--solution mlx": options.solution == "mlx",
        "--loader": options.loader is not None,  # the loops of the course have no grammars
    }
    for other, is_given in conflicts.items():
        if is_given:
            raise Refusal(f"{flag(given)}: cannot be combined with {other}")
    try:
        if given == "regex":
            return Grammar.regex(options.regex)
        return Grammar.json_schema(options.json_schema.read_text(encoding="utf-8"))
    except ArgumentError as error:
        raise Refusal(f"{flag(given)}: {error.reason}") from error
    except UnicodeDecodeError as error:
        raise Refusal(f"{flag(given)}: {options.json_schema}: expected text in UTF-8") from error
    except OSError as error:
        raise Refusal(f"{flag(given)}: {options.json_schema}: {error.strerror}") from error


def check_raw(options: argparse.Namespace) -> None:
    """Refuse options that have no effect with --raw."""
    for name, neutral in (("system", SYSTEM), ("enable_thinking", False)):
        if options.raw and getattr(options, name) != neutral:
            raise Refusal(f"{flag(name)}: has no effect with --raw, which uses no chat template")


def flash_flag(enabled: bool) -> str:
    """The flag as it was given."""
    return "--enable-flash-attn" if enabled else "--no-enable-flash-attn"


def build_backend(options: argparse.Namespace, progress: Progress) -> Backend:
    """Load the model of the options, for our code or for mlx-lm."""
    if options.solution == "mlx":
        return build_mlx_lm_backend(options, progress)
    return build_tiny_llm_backend(options, progress)


def build_tiny_llm_backend(options: argparse.Namespace, progress: Progress) -> OurBackend:
    """One of our models, and the draft model if one is named; with --loader, as the course runs it."""
    loader = LOADERS[options.loader or DEFAULT_LOADER]
    if options.draft_model is not None and not loader.has_cache:
        raise Refusal(
            f"--draft-model: needs a KV cache, from which rejected tokens are removed: use {WITH_CACHE}"
        )
    device = choose_device(options.device)
    flash = choose_flash(loader, options.enable_flash_attn)
    check_kernels()
    dtype = choose_dtype(options.dtype, device)
    group = group_of(options, "cannot be combined with --loader" if options.loader else None)
    with naming_flags(*RANKS, "draft_model", draft_tokenizer="--draft-model"):
        llm = load_llm(
            options.model,
            dtype,
            device,
            draft=options.draft_model,
            group=group,
            threads=options.threads,
            offline=options.offline,
            progress=progress,
            week=loader.week,
            **flash_argument(flash),
        )
    description = describe(options, device, dtype, flash)
    return (EngineBackend if options.loader is None else CourseBackend)(llm, description)


def group_of(options: argparse.Namespace, refusal: str | None = None) -> Group | None:
    """The group of processes that the options ask for, or a Refusal for this reason; None for one process."""
    with naming_flags(*RANKS):
        group = read_group(*(getattr(options, name, None) for name in RANKS))
    if group is not None and refusal is not None:
        raise Refusal(f"{flag(group.argument)}: {refusal}")
    return group


def build_mlx_lm_backend(options: argparse.Namespace, progress: Progress) -> MlxLmBackend:
    """The model and generation loop of mlx-lm."""
    refuse_with_mlx_lm(options, "loader", "enable_flash_attn", "draft_model", "threads", *RANKS)
    check_mlx_lm()
    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device, mlx_lm=True)
    checkpoint = load(options.model, offline=options.offline, progress=progress)
    return MlxLmBackend(checkpoint, dtype, describe(options, device, dtype), progress)


def refuse_with_mlx_lm(options: argparse.Namespace, *names: str) -> None:
    """Refuse flags that choose among our models and have no effect on mlx-lm's."""
    for name in names:
        value = getattr(options, name, None)
        if value is not None:
            given = flash_flag(value) if name == "enable_flash_attn" else flag(name)
            raise Refusal(f"{given}: has no effect with --solution mlx")


def build_stage(checkpoint: Checkpoint, loader: Stage, flash: AttentionChoice | None, dtype: mx.Dtype) -> Any:
    """Our model of a stage; `flash` is None if the stage has no such option."""
    return build_model(checkpoint, dtype, week=loader.week, **flash_argument(flash))


def flash_argument(flash: AttentionChoice | None) -> dict[str, Any]:
    return {} if flash is None else {"enable_flash_attn": flash}


def choose_flash(loader: Stage, requested: bool | None) -> AttentionChoice | None:
    """By default that of MLX's default device; None if the stage has only one kind, and refuses the flag."""
    if loader.has_flash_switch:
        return default_attention() if requested is None else requested
    if requested is not None:
        kinds = f"{loader.name} has one kind of attention; the flag is for {WITH_FLASH_SWITCH}"
        raise Refusal(f"{flash_flag(requested)}: {kinds}")
    return None


def describe(
    options: argparse.Namespace, device: str, dtype: mx.Dtype, flash: AttentionChoice | None = None
) -> dict[str, Any]:
    """The fields of the JSON output that describe a backend."""
    return {
        "model": options.model,
        "solution": options.solution,
        "loader": options.loader,
        "flash_attention": flash,
        "draft_model": getattr(options, "draft_model", None),
        "device": device,
        "dtype": dtype_name(dtype),
    }
