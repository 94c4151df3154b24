"""`pdm bench serving`: our server over HTTP, beside other servers and beside itself."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benches.cases.serving import GROUPS, Case, cases, is_quick
from benches.contestants.http.clients import run_clients
from benches.contestants.http.in_process import InProcess, differing
from benches.contestants.http.load import (
    Disturbed,
    Prompts,
    RequestFailed,
    at_once,
    check_lengths,
    disturb,
    times_of_a_prefix,
)
from benches.contestants.http.servers import ModelFiles, start
from benches.harness.row import Entry, Row
from benches.names import (
    FIRST,
    LLAMA_CPP,
    LOOP,
    MLX_LM,
    NO_BUDGET,
    QUIET,
    TINY_LLM,
    Missing,
)
from benches.report.serving import page
from benches.suite import Record, Suite, run
from benches.targets.serving import budget_verdict, clients_verdicts, judge
from tiny_llm.cli.arguments import number_where
from tiny_llm.loading.find import random_shortcut
from tiny_llm_tools.benchmark.clock import Samples, interleave
from tiny_llm_tools.benchmark.serving.client import Client
from tiny_llm_tools.benchmark.serving.http import Site
from tiny_llm_tools.benchmark.serving.load import LoadRun
from tiny_llm_tools.benchmark.serving.metrics import results
from tiny_llm_tools.benchmark.serving.probe import ServerError, list_models
from tiny_llm_tools.benchmark.serving.process import ServerProcess

MLX_LM_MODEL = "default_model"  # what mlx_lm.server calls the model of its command line
ONE_STEP = ("--step-tokens", "8192")  # more than any prompt here
SECONDS = 60.0  # of the clients
WARM_PROMPT, WARM_TOKENS = 16, 4  # of the first request to a server
GATE = "our greedy answers are those of generate; the answers of others have as many tokens"
GATE_PROMPTS, GATE_PROMPT, GATE_TOKENS = 4, 32, 16
WRONG_SHOWN = 20  # reasons of wrong answers in the record
# Share of the answers that may differ. The two best logits of random weights are often closer than the
# rounding of bfloat16, which depends on how many rows a step has.
TOLERANCE, TOLERANCE_OF_RANDOM_WEIGHTS = 0.0, 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if answers of our server were wrong; missed targets and missing peers are only reported."""
    files = ModelFiles()

    def rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
        yield row_of(case, files, options.threads[0], options.repeats, options.seconds)

    suite = Suite(
        name="serving",
        about="Measures servers over HTTP, with streamed answers, each in a process of its own and in turn,\n"
        "on the same weights. Greedy answers of our server are compared with those of\n"
        "`generate` first; others must give as many tokens. No server has drafts.\n"
        "Others take part if they are installed.",
        groups=GROUPS,
        cases=cases,
        is_quick=is_quick,
        measure=rows,
        table=page,
        repeats=5,
        peers=(LLAMA_CPP, MLX_LM),
        threads=(2,),
        add_arguments=_add_arguments,
        prepare=_prepare,
    )
    try:
        return run(suite, argv)
    except (ServerError, RequestFailed) as error:  # of our own server
        print(f"pdm bench serving: {error}", file=sys.stderr)
        return 1
    finally:
        files.close()


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=number_where(lambda x: x > 0, "above 0"), default=SECONDS, metavar="S",
        help="how long the clients of the group `clients` ask (default: %(default)g; the target means 600)",
    )  # fmt: skip


def _prepare(options: argparse.Namespace) -> Record:
    """`stream_generate` runs in this process, whose number of threads is fixed at the first kernel."""
    if len(options.threads) != 1:
        print("pdm bench serving: --threads: got several numbers, expected one for a run", file=sys.stderr)
        raise SystemExit(2)
    os.environ["TINY_LLM_THREADS"] = str(options.threads[0])
    return {}


def row_of(case: Case, files: ModelFiles, threads: int, repeats: int, seconds: float) -> Row:
    """Our server first, then in the groups that have them our server without a budget, and other servers."""
    rows = Rows(case, files, threads, repeats)
    model = InProcess(files.folder(case.model, case.dtype))
    with rows.started(TINY_LLM) as (server, client):
        error = differing(client, model, rows.prompts.requests(GATE_PROMPTS, GATE_PROMPT, GATE_TOKENS))
        is_random = random_shortcut(case.model) is not None
        if error > (TOLERANCE_OF_RANDOM_WEIGHTS if is_random else TOLERANCE):
            rows.add(TINY_LLM, None, error)
            return rows.row
        match case.group:
            case "streams":
                rows.measure_streams(TINY_LLM, client, error)
            case "http":
                rows.measure_one_stream(client, model, error)
            case "prefix":
                rows.measure_prefix(client, error)
            case "gap":
                with_budget = rows.measure_gaps(client, error)
            case "clients":
                rows.measure_clients(client, server.pid, seconds, error)
    rows.row.verdicts += judge(case, rows.row)
    if case.group == "gap":
        with rows.started(TINY_LLM, ONE_STEP) as (_, client):
            rows.add_without_budget(client, with_budget)
    for peer in case.peers:
        try:
            with rows.started(peer) as (_, client):
                rows.measure_streams(peer, client, 0.0)
        except (Missing, ServerError, RequestFailed) as reason:
            rows.row.missing[peer] = str(reason)
    return rows.row


class Rows:
    """Measures one row."""

    def __init__(self, case: Case, files: ModelFiles, threads: int, repeats: int):
        self.case = case
        self.row = Row(case.group, case.name, threads, gate=GATE)
        self.row.details = {**case.record(), "figures": {}}
        self.prompts = Prompts()
        self._files = files
        self._repeats = repeats

    @contextmanager
    def started(self, name: str, options: Sequence[str] = ()) -> Iterator[tuple[ServerProcess, Client]]:
        """A server that has answered a request."""
        case = self.case
        process = start(name, self._files, case.model, self.row.threads, case.dtype, options)
        with process as server:
            site = Site.at(server.url)
            model = MLX_LM_MODEL if name == MLX_LM else list_models(site)[0]["id"]
            client = Client(site, model, ignore_eos=name == TINY_LLM)
            at_once(client, self.prompts.requests(1, WARM_PROMPT, WARM_TOKENS))
            yield server, client

    def add(self, name: str, seconds: Samples | None, error: float = 0.0) -> None:
        self.row.entries.append(Entry(name, None, "", error, seconds, 0.0, 0.0))

    def measure_streams(self, name: str, client: Client, error: float) -> None:
        """The seconds until all answers of requests that are sent together have ended."""
        case = self.case
        work = (case.streams, case.prompt, case.output)
        runs = [at_once(client, self.prompts.requests(*work)) for _ in range(self._repeats)]
        check_lengths([answer for run in runs for answer in run.answers], case.output)
        self.add(name, Samples(tuple(run.duration for run in runs)), error)
        answers = [answer for run in runs for answer in run.answers]
        if all(answer.has_usage for answer in answers):  # llama-cpp-python counts none
            whole = LoadRun(answers, sum(run.duration for run in runs))
            self.row.details["figures"][name] = results(whole)

    def measure_one_stream(self, client: Client, model: InProcess, error: float) -> None:
        """Seconds of a token after the first, over HTTP and without a server, in turn."""
        work = (1, self.case.prompt, self.case.output)
        runs: list[LoadRun] = []

        def over_http() -> float:
            runs.append(at_once(client, self.prompts.requests(*work)))
            return runs[-1].answers[0].tpot or 0.0

        def in_process() -> float:
            return model.seconds_per_token(self.prompts.requests(*work)[0])

        in_process()  # the first answer of a process takes longer
        probes = {TINY_LLM: over_http, LOOP: in_process}
        _, samples = interleave({}, repeats=self._repeats, probes=probes)
        self.add(TINY_LLM, samples[TINY_LLM], error)
        self.add(LOOP, samples[LOOP])
        whole = LoadRun([run.answers[0] for run in runs], sum(run.duration for run in runs))
        self.row.details["figures"][TINY_LLM] = results(whole)

    def measure_prefix(self, client: Client, error: float) -> None:
        """The times to the first token; each pair has a prefix of its own."""
        sizes = (self.case.prompt, self.case.output)
        pairs = [times_of_a_prefix(client, self.prompts, *sizes) for _ in range(self._repeats)]
        self.add(TINY_LLM, Samples(tuple(second for _, second in pairs)), error)
        self.add(FIRST, Samples(tuple(first for first, _ in pairs)))

    def measure_gaps(self, client: Client, error: float) -> Samples:
        """The p99 of the gaps of each run, and all gaps without the prompt; the seconds of the runs."""
        runs = self._disturbed(client)
        self.add(TINY_LLM, Samples(tuple(Samples(tuple(run.during)).quantile(0.99) for run in runs)), error)
        self.add(QUIET, Samples(tuple(gap for run in runs for gap in run.quiet)))
        return Samples(tuple(run.seconds for run in runs))

    def add_without_budget(self, client: Client, with_budget: Samples) -> None:
        """The same work on a server whose steps take whole prompts."""
        runs = self._disturbed(client)
        gaps = Samples(tuple(Samples(tuple(run.during)).quantile(0.99) for run in runs))
        self.add(NO_BUDGET, gaps)
        self.row.verdicts.append(budget_verdict(with_budget, Samples(tuple(run.seconds for run in runs))))

    def measure_clients(self, client: Client, pid: int, seconds: float, error: float) -> None:
        """The times to the first token of the good requests."""
        case = self.case
        outcome = run_clients(client, self.prompts, case.streams, case.prompt, case.output, seconds, pid)
        good = [answer for answer in outcome.answers if answer.failure is None]
        if good:
            self.add(TINY_LLM, Samples(tuple(answer.ttft for answer in good)), error)
        self.row.details["figures"][TINY_LLM] = results(LoadRun(outcome.answers, outcome.seconds))
        self.row.details |= {"ended": outcome.ended, "wrong": outcome.wrong[:WRONG_SHOWN]}
        self.row.verdicts += clients_verdicts(outcome, case.streams)

    def _disturbed(self, client: Client) -> list[Disturbed]:
        sizes = (self.case.prompt, self.case.output)
        return [disturb(client, self.prompts, *sizes) for _ in range(self._repeats)]


if __name__ == "__main__":
    raise SystemExit(main())
