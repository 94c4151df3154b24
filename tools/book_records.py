"""Records what widgets of the book show of the embedded model: `python tools/book_records.py`."""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src" / "extensions"), str(ROOT / "src"), str(ROOT / "tools")]
import mlx.core as mx  # noqa: E402
from book_server.attention import PromptAttention  # noqa: E402

from tiny_llm import LLM  # noqa: E402
from tiny_llm.generation.messages import render_prompt  # noqa: E402

WIDGETS = ROOT / "book" / "widgets"
COMMAND = "python tools/book_records.py"
# A question, and how many tokens of the greedy answer come before the token that is drawn.
KEEPER = "Tell me a story about a lighthouse keeper."
QUESTIONS = {
    "a character": (KEEPER, 8),
    "a name": (KEEPER, 11),
    "a second sentence": ("Write a poem about the sea.", 13),
    "a sum": ("What is 12 + 7?", 1),
}
DIGITS = 3  # of a logit
QUESTION = "My name is Zorbo. What is my name?"  # some heads of the last token look for the name


def sampling() -> dict[str, Any]:
    """The logits of the whole vocabulary after the beginnings of some answers."""
    llm = LLM("tiny", dtype="float32")
    tokens = [llm.tokenizer.decode([token]) for token in range(llm.model.vocab_size)]
    examples = []
    for name, (question, count) in QUESTIONS.items():
        prompt = llm.tokenizer.encode(render_prompt("", "tiny", llm.tokenizer, question, False))
        answer: list[int] = []
        logits = next_logits(llm, prompt)
        while len(answer) < count:
            answer.append(int(mx.argmax(logits).item()))
            logits = next_logits(llm, [*prompt, *answer])
        rounded = [round(logit, DIGITS) for logit in logits.tolist()]
        examples.append(
            {"name": name, "question": question, "prompt": prompt, "answer": answer, "logits": rounded}
        )
    return {"command": COMMAND, "tokens": tokens, "examples": examples}


def next_logits(llm: LLM, ids: list[int]) -> mx.array:
    cache = llm.model.create_kv_cache()
    logits = llm.model.next_logits(mx.array([ids]), 0, cache)[0]
    for each in cache:
        each.release()
    return logits


def attention() -> dict[str, Any]:
    """What the server of the book answers to a question."""
    return {"command": COMMAND, "question": QUESTION, **PromptAttention()(QUESTION)}


def main() -> None:
    for widget, record in (("sampling", sampling()), ("live_attention", attention())):
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        (WIDGETS / widget / "recorded.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
