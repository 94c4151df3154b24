"""Ask an exported model 50 held-out prompts and check the answers.

python -m training.evaluate MODEL_FOLDER [--prompts 50] [--json FILE]      (needs mlx-lm)
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import mlx.core as mx

from tiny_llm.export import export_dense
from tiny_llm.loading import load as load_checkpoint
from training.checks import check
from training.conversation import Turn
from training.corpus import of_kind

SHARES = {"story": 18, "arithmetic": 14, "about": 8, "words": 4, "chat": 4, "other": 2}
LONGEST_ANSWER = 320
Answerer = Callable[[str], tuple[str, bool]]


def held_out_prompts(seed: int, number: int) -> list[tuple[str, Turn]]:
    """First turns of held-out conversations, in the shares above."""
    rng = random.Random(f"evaluate/{seed}")
    total = sum(SHARES.values())
    return [
        (kind, of_kind(rng, kind, holdout=True)[0])
        for kind, share in SHARES.items()
        for _ in range(share * number // total)
    ]


def greedy(folder: Path) -> Answerer:
    """Answers of mlx-lm without sampling; the same weights as dense float32 on a CPU, where MLX is slow on 4 bits."""
    from mlx_lm import load, stream_generate

    if mx.default_device() == mx.cpu and "quantization" in json.loads((folder / "config.json").read_text()):
        with TemporaryDirectory() as dense:
            export_dense(load_checkpoint(str(folder)), Path(dense))
            model, tokenizer = load(dense)
    else:
        model, tokenizer = load(str(folder))

    def answer(question: str) -> tuple[str, bool]:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True
        )
        pieces = list(stream_generate(model, tokenizer, prompt, max_tokens=LONGEST_ANSWER))
        return "".join(piece.text for piece in pieces), pieces[-1].finish_reason == "stop"

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write every answer and its verdict to this file")
    arguments = parser.parse_args()
    answer = greedy(arguments.model)
    records, asked, passed = [], Counter(), Counter()
    for kind, turn in held_out_prompts(arguments.seed, arguments.prompts):
        text, ended = answer(turn.user)
        reason = check(turn, text, ended)
        asked[kind] += 1
        passed[kind] += not reason
        records.append({"kind": kind, "prompt": turn.user, "answer": text, "fault": reason})
        print(
            f"{'ok  ' if not reason else 'FAIL'} {kind}: {turn.user}\n     {text}{f'  [{reason}]' if reason else ''}",
            flush=True,
        )
    for kind, number in asked.items():
        print(f"{kind:12} {passed[kind]:3} of {number}")
    print(f"{'all':12} {passed.total():3} of {asked.total()}")
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
