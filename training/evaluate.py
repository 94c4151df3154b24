"""Ask an exported model held-out prompts of ten kinds, judge the answers, and decide whether the model may ship.

python -m training.evaluate MODEL_FOLDER [--each 40] [--seed 0] [--by training] [--json FILE]

Half of the prompts were written by hand (evaluation/held_out/). The others are generated, with words, numbers and wordings that
training never sees. Exit code 1: too much is wrong, or too little is right.
"""

import argparse
import json
import random
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from training.corpus.batches import Encoder
from training.corpus.conversation import Conversation, Turn
from training.corpus.disorder import disorder, polite
from training.corpus.mixture import KINDS, of_kind
from training.evaluation.answers import CONTEXT, LONGEST_ANSWER, AnswerFunction, by_pipeline, by_training
from training.evaluation.checks import Verdict, judge
from training.evaluation.held_out import by_hand

ROUGH = "rough"  # questions of the other kinds, with many typing errors and the like
OF_ITS_DOMAIN = ("story", "arithmetic", "about", "words", "chat", ROUGH)
MUCH_DISORDER = 4.0
MAX_WRONG, MIN_HONEST, LEAST_RIGHT = 0.02, 0.95, 0.90


@dataclass
class Case:
    """A conversation whose last answer is judged."""

    kind: str
    origin: str
    turns: Conversation

    @property
    def judged(self) -> Turn:
        return self.turns[-1]


def rough(rng: random.Random) -> Conversation:
    """A question of another kind with much disorder."""
    turn = of_kind(
        rng, rng.choice(["arithmetic", "beyond", "about", "words", "chat", "other"]), holdout=True
    )[0]
    if turn.as_is:
        return [turn]
    return [Turn(disorder(rng, polite(rng, turn.user, MUCH_DISORDER), MUCH_DISORDER), "", turn.facts)]


def generated(rng: random.Random, kind: str, encode: Encoder) -> Conversation:
    """A generated conversation that leaves room for an answer in the context."""
    while True:
        turns = rough(rng) if kind == ROUGH else of_kind(rng, kind, holdout=True)
        turns = turns if kind == "chat" else turns[:1]
        if len(encode.ids(turns[-1].user)) < CONTEXT - LONGEST_ANSWER // 2:
            return turns


def cases(seed: int, each: int, encode: Encoder) -> list[Case]:
    """The prompts by hand, and `each` generated ones of each kind."""
    rng = random.Random(f"evaluate/{seed}")
    hand = by_hand()
    return [
        case
        for kind in (*KINDS, ROUGH)
        for case in (
            *(Case(kind, "by hand", turns) for turns in hand[kind]),
            *(Case(kind, "generated", generated(rng, kind, encode)) for _ in range(each)),
        )
    ]


def ask(answer: AnswerFunction, asked: list[Case]) -> list[tuple[str, bool]]:
    """Run all conversations with the model's own answers, and return the last answers."""
    chats: list[list[dict[str, str]]] = [[] for _ in asked]
    last: dict[int, tuple[str, bool]] = {}
    for turn in range(max(len(case.turns) for case in asked)):
        going = [i for i, case in enumerate(asked) if turn < len(case.turns)]
        for i in going:
            chats[i].append({"role": "user", "content": asked[i].turns[turn].user})
        for i, reply in zip(going, answer([chats[i] for i in going]), strict=True):
            chats[i].append({"role": "assistant", "content": reply[0]})
            last[i] = reply
    return [last[i] for i in range(len(asked))]


Counts = dict[str, Counter]


def evaluate(answer: AnswerFunction, asked: list[Case]) -> tuple[Counts, list[dict[str, str]]]:
    """The verdicts by kind, and every answer with its verdict."""
    counts: Counts = {}
    records = []
    for case, (text, ended) in zip(asked, ask(answer, asked), strict=True):
        verdict, reason = judge(case.judged, text, ended)
        counts.setdefault(case.kind, Counter())[verdict] += 1
        records.append(
            {"kind": case.kind, "origin": case.origin, "verdict": verdict, "prompt": " // ".join(t.user for t in case.turns),
             "answer": text, "reason": reason}
        )  # fmt: skip
    return counts, records


def table(counts: Counts) -> str:
    """The table of the model card."""
    lines = ["| kind | prompts | right | declined | wrong | neither |", "|---|---|---|---|---|---|"]
    for kind, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        lines.append(
            f"| {kind} | {count.total()} | {' | '.join(str(count[verdict]) for verdict in Verdict)} |"
        )
    return "\n".join(lines)


def faults(counts: Counts) -> list[str]:
    """The reasons why the model may not ship."""
    total = sum(counts.values(), Counter())
    known = sum((count for kind, count in counts.items() if kind in OF_ITS_DOMAIN), Counter())
    shares = {
        "wrong": total[Verdict.WRONG] / total.total(),
        "right or declined": (total[Verdict.RIGHT] + total[Verdict.DECLINED]) / total.total(),
        "right within its domain": known[Verdict.RIGHT] / max(1, known.total()),
    }
    result = [f"wrong: {shares['wrong']:.1%}"] if shares["wrong"] > MAX_WRONG else []
    for name, least in (("right or declined", MIN_HONEST), ("right within its domain", LEAST_RIGHT)):
        if shares[name] < least:
            result.append(f"{name}: {shares[name]:.1%}")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--each", type=int, default=40, help="generated prompts of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--by", choices=["pipeline", "training"], default="pipeline", help="which code computes the answers"
    )
    parser.add_argument("--json", type=Path, help="write every answer and its verdict to this file")
    arguments = parser.parse_args()
    answer = {"pipeline": by_pipeline, "training": by_training}[arguments.by](arguments.model)
    encode = Encoder(arguments.model / "tokenizer.json")
    counts, records = evaluate(answer, cases(arguments.seed, arguments.each, encode))
    for record in records:
        if record["verdict"] != Verdict.RIGHT:
            prompt = record["prompt"] if len(record["prompt"]) < 200 else record["prompt"][:100] + " ... "
            print(
                f"{record['verdict']:8} {record['kind']}, {record['origin']}: {prompt}\n         {record['answer']}  [{record['reason']}]"
            )
    print(table(counts))
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1) + "\n")
    found = faults(counts)
    print("may ship" if not found else "may not ship: " + ", ".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
