"""`tiny-llm batch`, and `pdm run batch-main`: sixteen questions at once, by continuous batching."""

import argparse
import json
import sys
import time
from typing import Any

import mlx.core as mx

from ..batch import Request, batch_generate
from ..engine.text import context_length
from ..errors import ArgumentError
from . import arguments, summary
from .assembly import assemble_ours
from .endings import Refusal, note
from .generate import messages
from .progress import Progress, dimmed
from .prompts import PROMPTS

SUMMARY = "answer sixteen questions at once"
DESCRIPTION = """Answers a fixed set of sixteen questions by continuous batching: up to --batch-size answers
grow together, and each question joins as soon as a place is free. An answer is printed when it is whole."""
TASK = "answering"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser)
    arguments.add_model(parser)
    arguments.add_machine(parser)
    arguments.add_conversation(parser)
    group = parser.add_argument_group("batch")
    group.add_argument(
        "--solution",
        type=ours_only,
        default="tiny_llm",
        metavar="tiny_llm",
        help="who computes: this project",
    )
    group.add_argument(
        "--batch-size", type=arguments.whole(1), default=5, metavar="N",
        help="so many answers grow together (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--prefill-step", type=arguments.whole(1), default=128, metavar="N",
        help="read a question in pieces of so many tokens, between two steps of the others "
        "(default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--max-seq-len", type=arguments.whole(2), default=512, metavar="N",
        help="longest question and answer together, in tokens (default: %(default)s)",
    )  # fmt: skip
    parser.set_defaults(loader=None, draft_model=None)


def ours_only(text: str) -> str:
    if arguments.solution(text) != "tiny_llm":
        raise argparse.ArgumentTypeError(f"got {text}, expected tiny_llm: mlx is for main and bench")
    return text


def run(options: argparse.Namespace) -> int:
    """Print each answer as it is complete, then what all took; or everything as JSON."""
    done: list[Request] = []
    with Progress() as progress:
        answerer = assemble_ours(options, progress)
        progress("writing the prompts", 0, None)
        prompts = [
            answerer.write_prompt(messages(options.system, question), options.enable_thinking)
            for question in PROMPTS
        ]

        longest = min(options.max_seq_len, context_length(answerer.model) or options.max_seq_len)

        def finished(request: Request) -> None:
            done.append(request)
            if not options.json:
                progress.print_above(as_text(request))
            progress(TASK, len(done), len(prompts))

        progress(TASK, 0, len(prompts))
        begin = time.perf_counter()
        try:
            batch_generate(
                answerer.model,
                answerer.tokenizer,
                prompts,
                options.max_seq_len,
                options.batch_size,
                options.prefill_step,
                finished=finished,
            )
        except ArgumentError as error:
            flag = "--max-seq-len: " if error.argument.startswith("prompts[") else ""
            raise Refusal(f"{flag}{error.argument}: {error.reason}") from error
        seconds = time.perf_counter() - begin
    done.sort(key=lambda request: request.prompt_idx)
    answers = [as_record(request, longest) for request in done]
    report = {**answerer.description, **measured(answers, seconds)}
    if options.json:
        print(json.dumps({**report, "answers": answers}, indent=2))
    else:
        note(dimmed(f"{as_line(report)}\n{summary.setting(answerer.description)}", sys.stderr))
    return 0


def as_text(request: Request) -> str:
    return f"[{request.prompt_idx + 1}] {PROMPTS[request.prompt_idx]}\n{request.text()}\n"


def as_record(request: Request, longest: int) -> dict[str, Any]:
    """An answer in the terms of `generate --json`: the token that ends an answer is counted, too."""
    prompt_tokens = request.prefill_tokens.size
    stopped = request.offset < longest
    newest = request.next_token is not None  # which is in no cache
    return {
        "prompt": PROMPTS[request.prompt_idx],
        "text": request.text(),
        "finish_reason": "stop" if stopped else "length",
        "prompt_tokens": prompt_tokens,
        "generated_tokens": request.offset - prompt_tokens + newest + stopped,
    }


def measured(answers: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    prompt_tokens, generated = (
        sum(answer[count] for answer in answers) for count in ("prompt_tokens", "generated_tokens")
    )
    return {
        "prompts": len(answers),
        "prompt_tokens": prompt_tokens,
        "generated_tokens": generated,
        "seconds": seconds,
        "output_tokens_per_second": generated / seconds,
        "total_tokens_per_second": (prompt_tokens + generated) / seconds,
        "peak_memory_bytes": mx.get_peak_memory(),
    }


def as_line(report: dict[str, Any]) -> str:
    return (
        f"{report['prompts']} prompts of {report['prompt_tokens']} tokens, answers of "
        f"{report['generated_tokens']} tokens in {report['seconds']:.1f} s | "
        f"{report['output_tokens_per_second']:.0f} tok/s out, "
        f"{report['total_tokens_per_second']:.0f} in all | "
        f"peak memory {report['peak_memory_bytes'] / 1e6:.0f} MB"
    )
