"""The embedded model: its files, agreement with mlx-lm and transformers, and sensible answers."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import tokenizers

import tiny_llm
from tiny_llm.loading import load
from tiny_llm.loading.export import export_dense
from tiny_llm.models import dispatch_model
from training.corpus.conversation import Turn
from training.evaluation.checks import check

EMBEDDED = Path(tiny_llm.__file__).parent / "embedded"
CHAT = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is a KV cache?"},
    {"role": "assistant", "content": "It keeps keys and values."},
    {"role": "user", "content": "Tell me a story about a brave fox."},
]


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """The folder for transformers: the same weights, dense and in float32."""
    folder = tmp_path_factory.mktemp("dense")
    export_dense(load("tiny"), folder)
    return folder


@pytest.fixture(scope="module")
def prompt():
    """Token ids of a chat, made by the template that ships."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(str(EMBEDDED))
    return tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)


@pytest.fixture(scope="module")
def dense_logits(dense, prompt):
    """Logits (L, vocabulary) of mlx-lm on the dense folder."""
    import mlx_lm

    model, _ = mlx_lm.load(str(dense))
    return np.array(model(mx.array([prompt]))[0])


def assert_near(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


def test_the_folder_is_small_and_complete():
    files = {path.name: path.stat().st_size for path in EMBEDDED.iterdir() if path.is_file()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert {"tokenizer_config.json", "README.md"} <= set(files)
    assert sum(files.values()) <= 12_000_000


def test_the_shape_has_grouped_heads_of_the_fast_kernels():
    config = json.loads((EMBEDDED / "config.json").read_text())
    assert config["model_type"] == "qwen2"
    assert config["hidden_size"] // config["num_attention_heads"] == 128
    assert 1 <= config["num_key_value_heads"] < config["num_attention_heads"]
    assert config["tie_word_embeddings"] is True
    assert config["quantization"] == {"group_size": 64, "bits": 4, "mode": "affine"}


def test_the_weights_are_those_that_the_config_names():
    config = json.loads((EMBEDDED / "config.json").read_text())
    weights = mx.load(str(EMBEDDED / "model.safetensors"))
    layers = {name.split(".")[2] for name in weights if name.startswith("model.layers.")}
    assert layers == {str(i) for i in range(config["num_hidden_layers"])}
    packed = weights["model.embed_tokens.weight"]
    assert (packed.dtype, packed.shape) == (mx.uint32, (config["vocab_size"], config["hidden_size"] // 8))
    assert "lm_head.weight" not in weights
    assert all(mx.isfinite(w).all().item() for w in weights.values() if w.dtype != mx.uint32)


def test_the_chat_template(prompt):
    text = tokenizers.Tokenizer.from_file(str(EMBEDDED / "tokenizer.json")).decode(prompt, False)
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in CHAT)
    assert text == f"{turns}<|im_start|>assistant\n"


def test_mlx_lm_agrees_on_the_packed_and_the_dense_weights(prompt, dense_logits):
    import mlx_lm

    model, _ = mlx_lm.load(str(EMBEDDED))
    model.set_dtype(mx.float32)
    assert_near(np.array(model(mx.array([prompt]))[0]), dense_logits)


@pytest.mark.parametrize("week", [1, 2, 3])
def test_our_models_agree_with_mlx_lm(prompt, dense_logits, week, on_the_cpu):
    tiny = load("tiny")
    assert tiny.tokenizer.encode(tiny.tokenizer.apply_chat_template(CHAT)) == prompt
    model = dispatch_model("tiny", tiny.mlx_model, week, dtype=mx.float32)
    where = () if week == 1 else (0, model.create_kv_cache())
    assert_near(np.array(model(mx.array([prompt]), *where)[0]), dense_logits)


@pytest.mark.peers
def test_transformers_agrees_with_mlx_lm(dense, prompt, dense_logits):
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(str(dense), dtype=torch.float32)
    with torch.no_grad():
        assert_near(model(torch.tensor([prompt])).logits[0].numpy(), dense_logits)


@pytest.fixture(scope="module")
def answer():
    from training.evaluation.answers import by_pipeline

    run_batch = by_pipeline(EMBEDDED)
    return lambda question: run_batch([[{"role": "user", "content": question}]])[0]


@pytest.mark.parametrize(
    ("question", "facts"),
    [
        ("What is a KV cache?", {"contains": "keys", "contains too": "values"}),
        ("What is FlashAttention?", {"contains": "attention"}),
        ("What is 7 + 5?", {"number": "12"}),
        ("What is 9 * 8?", {"number": "72"}),
        ("What is the opposite of hot?", {"contains": "cold"}),
        ("What is the capital of France?", {"declines": "yes"}),
        ("Tell me a short story about a brave fox.", {"story": "brave fox", "brief": ""}),
    ],
)
def test_it_answers_sensibly(answer, question, facts):
    text, ended = answer(question)
    assert check(Turn(question, "", facts), text, ended) == "", text


def test_it_adds_numbers_that_training_held_out(answer):
    from training.corpus.split import held_out

    pairs = [(a, b) for a in range(21, 60, 3) for b in range(a, 90, 7) if held_out("+", f"{a},{b}")][:4]
    wrong = []
    for a, b in pairs:
        text, ended = answer(f"What is {a} + {b}?")
        wrong += [text] if check(Turn("", "", {"number": str(a + b)}), text, ended) else []
    assert len(pairs) == 4
    assert len(wrong) <= 1
