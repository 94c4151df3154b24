"""Greedy answers of an exported model, by tiny-llm's pipeline or by the forward pass of the training.

The second needs neither the extension nor a cache, so it runs on the training machine.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np

from training.corpus.batches import Encoder
from training.model.config import QUANTIZATION, ModelConfig
from training.model.forward import Weights, forward

Chat = list[dict[str, str]]
Answer = tuple[str, bool]  # the text, and whether it is complete
AnswerFunction = Callable[[list[Chat]], list[Answer]]
LONGEST_ANSWER, CONTEXT = 320, 2048
TOKENS_AT_ONCE, STEP = 1 << 16, 32


def by_pipeline(folder: Path) -> AnswerFunction:
    """The 4-bit model of week 2 with FlashAttention, as in `tiny-llm generate`."""
    from tiny_llm.generate import stream_generate
    from tiny_llm.loading import load
    from tiny_llm.models import dispatch_model

    checkpoint = load(str(folder), offline=True)
    model = dispatch_model("tiny", checkpoint.mlx_model, 2, enable_flash_attn=True, dtype=mx.float32)

    def answer(chat: Chat) -> Answer:
        prompt = checkpoint.tokenizer.apply_chat_template(chat, add_generation_prompt=True)
        generation = stream_generate(model, checkpoint.tokenizer, prompt, max_tokens=LONGEST_ANSWER)
        text = "".join(generation)
        return text, generation.finish_reason == "stop"

    return lambda chats: [answer(chat) for chat in chats]


def dense_weights(folder: Path) -> Weights:
    """The dequantized weights of an exported folder."""
    stored = mx.load(str(folder / "model.safetensors"))
    result: Weights = {}
    for name, array in stored.items():
        stem = name.removesuffix(".weight")
        if f"{stem}.scales" in stored:
            packed = array, stored[f"{stem}.scales"], stored[f"{stem}.biases"]
            result[name] = mx.dequantize(
                *packed, group_size=QUANTIZATION["group_size"], bits=QUANTIZATION["bits"]
            )
        elif not name.endswith((".scales", ".biases")):
            result[name] = array
    return result


def groups(prompts: list[list[int]]) -> Iterator[list[int]]:
    """Batches of indices of prompts of similar length, limited by TOKENS_AT_ONCE."""
    waiting: list[int] = []
    for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        if waiting and (len(waiting) + 1) * (len(prompts[i]) + LONGEST_ANSWER) > TOKENS_AT_ONCE:
            yield waiting
            waiting = []
        waiting.append(i)
    if waiting:
        yield waiting


def by_training(folder: Path) -> AnswerFunction:
    """The forward pass of the training, over the whole text for every token, on batches of prompts."""
    stored = json.loads((folder / "config.json").read_text())
    config = ModelConfig(**{name: stored[name] for name in ModelConfig.__dataclass_fields__})
    dtype = mx.bfloat16 if mx.default_device() == mx.gpu else mx.float32
    weights = {name: w.astype(dtype) for name, w in dense_weights(folder).items()}
    encode = Encoder(folder / "tokenizer.json")

    def continued(prompts: list[list[int]]) -> list[Answer]:
        sizes, limits = (
            np.array([len(p) for p in prompts]),
            [min(len(p) + LONGEST_ANSWER, CONTEXT) for p in prompts],
        )
        tokens = np.zeros((len(prompts), max(limits)), np.int32)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = prompt
        going = np.array([size < limit for size, limit in zip(sizes, limits, strict=True)])
        ended = np.zeros(len(prompts), bool)
        while going.any():
            rows = np.flatnonzero(going)
            width = min(tokens.shape[1], -(-int(sizes[rows].max()) // STEP) * STEP)
            logits = forward(weights, [mx.array(tokens[rows, :width])], config).reshape(len(rows), width, -1)
            last = mx.array(sizes[rows] - 1)[:, None, None]
            best = np.array(mx.argmax(mx.take_along_axis(logits, last, axis=1)[:, 0], axis=-1))
            for row, token in zip(rows, best, strict=True):
                if token in (encode.end, 0):
                    ended[row], going[row] = True, False
                    continue
                tokens[row, sizes[row]] = token
                sizes[row] += 1
                going[row] = sizes[row] < limits[row]
        return [
            (encode.tokenizer.decode(row[len(prompt) : size].tolist()), bool(done))
            for row, prompt, size, done in zip(tokens, prompts, sizes, ended, strict=True)
        ]

    def answer(chats: list[Chat]) -> list[Answer]:
        prompts = [encode.prompt(chat) for chat in chats]
        result: dict[int, Answer] = {}
        for numbers in groups(prompts):
            result |= zip(numbers, continued([prompts[i] for i in numbers]), strict=True)
        return [result[i] for i in range(len(chats))]

    return answer
