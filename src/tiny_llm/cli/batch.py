"""`tiny-llm batch` and `pdm run batch-main`: many questions at once, by continuous batching."""

import argparse
import time
from contextlib import nullcontext
from typing import Any

import mlx.core as mx

from ..engine import EngineRequest
from ..engine.batch import answer_all, check_list_invariant
from ..engine.sizes import MAX_RUNNING
from ..errors import AnswerError, ArgumentError
from ..generation.defaults import BATCH_MAX_SEQ_LEN, BATCH_PREFILL_STEP, BATCH_SIZE
from ..generation.messages import RawText, build_messages
from ..generation.result import Result
from ..generation.text import encode_prompt
from ..loading import LoadError
from ..sampling.params import Sampling
from . import arguments
from .backends import CourseBackend, OurBackend, settings_line
from .batch_file.cluster_options import add_cluster, refuse_cluster
from .batch_output import EarlierAnswers, as_record, check_output, write_line
from .build_backend import build_tiny_llm_backend, check_raw
from .exit_codes import Failure, Refusal, naming_flags, optional_packages
from .loaders import LOADERS
from .output_files import output_file, print_json
from .progress import ProgressBar, print_dimmed
from .prompts import BUILT_IN, FLAG, Question, is_batch_file, read_questions, refuse_lines

DESCRIPTION = """Answers the questions in a file, or sixteen built-in ones, by continuous batching: up to
--batch-size answers are generated together, and when one ends, the next question takes its place. Each
answer is printed or written when it is complete. The file may also be one of OpenAI's batch API: then the
answers are those of `tiny-llm serve`, and the same command continues an interrupted run."""
TASK = "answering"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("questions and answers")
    group.add_argument(
        FLAG, type=arguments.nonblank_text, metavar="FILE",
        help="one question per line, or one JSON object per line: with prompt or messages and optionally id "
        "and max_tokens, or a request with custom_id, method, url and body as in OpenAI's batch API; - reads "
        "standard input (default: sixteen built-in questions)",
    )  # fmt: skip
    group.add_argument(
        "--output", type=output_file, metavar="FILE",
        help="append each complete answer to this file as a line of JSON; it must be new or empty, except "
        "with requests",
    )  # fmt: skip
    group.add_argument(
        "--resume", action="store_true",
        help="keep the answers that --output has from an interrupted run with the same options, and answer "
        "the other questions",
    )  # fmt: skip
    arguments.add_raw(parser)
    arguments.add_json(parser, "print one JSON object: totals, and the answers unless --output is given")
    arguments.add_model(parser)
    arguments.add_machine(parser)
    arguments.add_ranks(parser)
    arguments.add_conversation(parser)
    group = parser.add_argument_group("batch")
    group.add_argument(
        "--solution", type=not_mlx, default="tiny_llm", metavar="FOLDER",
        help="with pdm run, a folder that `pdm run course start` made: your code (default: %(default)s)",
    )  # fmt: skip
    arguments.add_loader(group, [stage for stage in LOADERS.values() if stage.has_cache])
    group.add_argument(
        "--batch-size", type=arguments.integer(1), metavar="N",
        help="maximum number of answers generated together "
        f"(default: {BATCH_SIZE}; for a file of requests {MAX_RUNNING}, on each engine)",
    )  # fmt: skip
    group.add_argument(
        "--prefill-step", type=arguments.integer(1), metavar="N",
        help="budget of prompts: a step of the model computes N tokens of prompts, besides one token for "
        f"each of --batch-size answers (default: {BATCH_PREFILL_STEP})",
    )  # fmt: skip
    group.add_argument(
        "--max-seq-len", type=arguments.integer(2), metavar="N",
        help=f"maximum length of prompt and answer together, in tokens (default: {BATCH_MAX_SEQ_LEN})",
    )  # fmt: skip
    arguments.add_batch_invariant(group, "questions")
    add_cluster(parser)
    parser.set_defaults(draft_model=None)


def not_mlx(text: str) -> str:
    solution = arguments.solution(text)
    if solution == "mlx":
        raise argparse.ArgumentTypeError(
            f"got {text}, expected tiny_llm: only generate, chat and bench have mlx"
        )
    return solution


def run(options: argparse.Namespace) -> int:
    """Print or write each answer when it is complete, then the statistics; or everything as JSON."""
    if options.input is not None and is_batch_file(options.input):
        with optional_packages("serve"):
            from .batch_file.job import run as run_batch_file
        return run_batch_file(options)
    refuse_cluster(options, "needs an --input of requests, with custom_id, method, url and body")
    options.batch_size = options.batch_size or BATCH_SIZE
    if options.batch_invariant and options.loader is not None:
        raise Refusal("--batch-invariant: cannot be combined with --loader")
    check_raw(options)
    questions = BUILT_IN if options.input is None else read_questions(options.input, raw=options.raw)
    if options.raw:
        wrong = [
            f"line {each.line}: messages: --raw uses no chat template" for each in questions if each.messages
        ]
        refuse_lines(options.input, wrong)
    check_output(options.output, resume=options.resume)
    earlier = EarlierAnswers(options.output if options.resume else None, questions)
    done: dict[int, Result] = {}
    with ProgressBar() as progress:
        backend = build_tiny_llm_backend(options, progress)
        longest = length_option("--max-seq-len", options.max_seq_len, BATCH_MAX_SEQ_LEN, backend.context)
        step = length_option("--prefill-step", options.prefill_step, BATCH_PREFILL_STEP, backend.context)
        if options.batch_invariant:
            with naming_flags("batch_invariant"):
                check_list_invariant(backend.llm)
        progress("preparing the prompts", 0, None)
        prompts = render_prompts(options, questions, backend, longest)
        for question, ids in zip(questions, prompts, strict=True):
            earlier.check_prompt(question, len(ids))
        earlier.keep()
        pending = [each for each in zip(questions, prompts, strict=True) if each[0] not in earlier]
        asked = [question for question, _ in pending]
        requests = [as_request(question, ids, longest) for question, ids in pending]
        with nullcontext() if options.output is None else options.output.open("a", encoding="utf-8") as file:

            def on_finish(index: int, result: Result) -> None:
                done[index] = result
                question = asked[index]
                if file is not None:
                    write_line(file, as_record(question, result))
                elif not options.json:
                    progress.print_above(as_text(question, result))
                progress(TASK, len(earlier) + len(done), len(questions))

            progress(TASK, len(earlier), len(questions))
            start = time.perf_counter()
            failure = None
            try:
                if isinstance(backend, CourseBackend):
                    backend.answer_all(requests, options.batch_size, step, longest, on_finish)
                else:
                    answer_all(
                        backend.llm,
                        requests,
                        batch_size=options.batch_size,
                        prefill_tokens=step,
                        finished=on_finish,
                        batch_invariant=options.batch_invariant,
                    )
            except AnswerError as error:  # of some answers; the others are complete
                failure = error
            seconds = time.perf_counter() - start
    answers = [as_record(asked[index], done[index]) for index in sorted(done)]
    complete = [answer for answer in answers if "error" not in answer]
    if failure is not None and not complete:
        raise failure
    report = {**backend.description, **totals(complete, seconds)}
    if options.resume:
        report["kept"] = len(earlier)
    if options.json:
        print_json(report if options.output else {**report, "answers": answers}, indent=2)
    else:
        print_dimmed(f"{totals_line(report)}\n{settings_line(backend.description)}")
    if failure is not None:
        first = next(answer["line"] for answer in answers if "error" in answer)
        missing = len(answers) - len(complete)
        raise Failure(f"{missing} of {len(answers)} questions have no answer; question {first}: {failure}")
    return 0


def length_option(flag: str, requested: int | None, default: int, context: int) -> int:
    """The requested length, or `default` cut to the context; Refusal if it exceeds the context."""
    if requested is not None and requested > context:
        raise Refusal(f"{flag}: got {requested}, expected at most the context of {context}")
    return min(default, context) if requested is None else requested


def render_prompts(
    options: argparse.Namespace, questions: tuple[Question, ...], backend: OurBackend, longest: int
) -> list[list[int]]:
    """The ids of the prompts of all questions, which are checked before any is answered."""
    prompts, wrong = [], []
    for question in questions:
        try:
            prompts.append(encode_question(question, options, backend, longest))
        except ArgumentError as error:
            if options.input is None:  # the built-in questions are short
                flag = "--max-seq-len" if error.argument == "max_seq_len" else "--system"
                raise Refusal(f"{flag}: question {question.line}: {error.reason}") from error
            field = "max_tokens: " if error.argument == "max_tokens" else ""
            wrong.append(f"line {question.line}: {field}{error.reason}")
        except LoadError as error:  # the chat template refuses this line
            if options.input is None:
                raise
            wrong.append(f"line {question.line}: {error}")
            break  # a template that times out would do so on every line
    refuse_lines(options.input, wrong)
    return prompts


def encode_question(
    question: Question, options: argparse.Namespace, backend: OurBackend, longest: int
) -> list[int]:
    """The ids of the prompt of a question; a prompt, or a max_tokens, that does not fit is refused."""
    if options.raw and question.prompt is not None:
        prompt: str = RawText(question.prompt)
    else:
        conversation = question.messages or build_messages(options.system, [], question.prompt or "")
        prompt = backend.render(conversation, options.enable_thinking)
    ids = encode_prompt("", [backend.model], backend.tokenizer, prompt)
    if len(ids) >= longest:
        expected = f"fewer than --max-seq-len, {longest}"
        raise ArgumentError("", "max_seq_len", f"{len(ids)} tokens", expected)
    room = longest - len(ids)
    if question.max_tokens is not None and question.max_tokens > room:
        expected = f"at most {room}: --max-seq-len, {longest}, minus {len(ids)} of the prompt"
        raise ArgumentError("", "max_tokens", question.max_tokens, expected)
    return ids


def as_request(question: Question, prompt_ids: list[int], longest: int) -> EngineRequest:
    """A greedy request. The last token of an answer counts for no length: it is not computed."""
    limit = question.max_tokens or longest - len(prompt_ids) + 1
    return EngineRequest(prompt_ids=prompt_ids, sampling=Sampling(max_tokens=limit))


def as_text(question: Question, result: Result) -> str:
    prompt = question.prompt if question.messages is None else question.messages[-1]["content"]
    text = result.text if result.error is None else f"(no answer: {result.error})"
    return f"[{question.line}] {prompt}\n{text}\n"


def totals(answers: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
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


def totals_line(report: dict[str, Any]) -> str:
    kept = f"{report['kept']} answers kept, " if "kept" in report else ""
    return (
        f"{kept}{report['prompts']} prompts, {report['prompt_tokens']} prompt tokens, "
        f"{report['generated_tokens']} generated tokens in {report['seconds']:.1f} s | "
        f"output {report['output_tokens_per_second']:.0f} tok/s, "
        f"total {report['total_tokens_per_second']:.0f} tok/s | "
        f"peak memory {report['peak_memory_bytes'] / 1e6:.0f} MB"
    )
