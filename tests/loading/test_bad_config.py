"""Configs that are damaged, or of models that do not run here: each error names the field."""

from __future__ import annotations

import re

import pytest

from ..support.models.checkpoints import checkpoint
from .damage import Case, assert_refused, content, each
from .folders import change_json, write_folder

YARN = {"rope_type": "yarn", "factor": 4.0}
LLAMA = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
OTHER = {"rope_type": "longrope", "factor": 4.0}
PACKED = {"group_size": 64, "bits": 4}

FIELDS = [
    ("model_type", "gpt2", "got 'gpt2', expected 'qwen2' or 'qwen3' or 'llama'"),
    ("model_type", None, "got nothing, expected 'qwen2' or 'qwen3'"),
    ("model_type", ["qwen2"], r"got \['qwen2'\], expected 'qwen2' or 'qwen3'"),
    (
        "auto_map",
        {"AutoModel": "code.Model"},
        "got .*, expected none: code that comes with a model is never run",
    ),
    ("model_file", "model.py", "got 'model.py', expected none: code"),
    ("hidden_act", "gelu", "got 'gelu', expected 'silu'"),
    ("use_sliding_window", True, "got True, expected false"),
    ("layer_types", ["sliding_attention"], "got .*, expected only 'full_attention'"),
    ("layer_types", 3, "got 3, expected a list"),
    ("rope_scaling", OTHER, "rope_type: got 'longrope', expected 'default', 'yarn' or 'llama3' or 'linear'"),
    ("rope_parameters", OTHER, "rope_type: got 'longrope', expected 'default', 'yarn' or 'llama3'"),
    ("rope_scaling", {"factor": 4.0}, "rope_type: got nothing, expected 'yarn' or .* beside factor"),
    ("rope_scaling", LLAMA, "original_max_position_embeddings: got nothing, expected a whole number from 1"),
    ("rope_scaling", LLAMA | {"high_freq_factor": 1.0}, "high_freq_factor: got 1.0, expected a number above"),
    ("rope_scaling", LLAMA | {"low_freq_factor": None}, "low_freq_factor: got nothing, expected a number"),
    ("rope_scaling", {"type": "linear", "factor": 0}, "factor: got 0, expected a number from 1 to 1024"),
    ("rope_scaling", {"type": "yarn"}, "factor: got nothing, expected a number from 1 to 1024"),
    ("rope_scaling", YARN | {"factor": 0.5}, "factor: got 0.5, expected a number from 1"),
    ("rope_scaling", YARN | {"factor": True}, "factor: got True, expected a number from 1"),
    ("rope_scaling", YARN | {"mscale": 1.0}, "mscale: got 1.0, expected none beside factor, original"),
    ("rope_scaling", YARN | {"beta_fast": 1, "beta_slow": 2}, "beta_fast: got 1, expected a number from 2"),
    ("rope_scaling", YARN | {"beta_slow": 40}, "beta_fast: got 32.0, expected a number from 40"),
    ("rope_scaling", YARN | {"attention_factor": 0}, "attention_factor: got 0, expected a number from"),
    (
        "rope_scaling",
        YARN | {"original_max_position_embeddings": 2**23},
        "original_max_position_embeddings: got 8388608, expected a whole number from 1 to 4194304",
    ),
    (
        "rope_scaling",
        YARN | {"original_max_position_embeddings": 32768.0},
        "original_max_position_embeddings: got 32768.0, expected a whole number",
    ),
    ("rope_scaling", YARN | {"rope_theta": 1}, "rope_theta: got 1.0, expected a number above 1 with yarn"),
    ("rope_scaling", "yarn", "got 'yarn', expected an object"),
    ("rope_theta", -1.0, "got -1.0, expected a number above 0"),
    ("rope_theta", 10**400, "got 1000.*, expected a number above 0, at most"),
    ("rope_theta", "10000", "got '10000', expected a number"),
    ("rope_theta", None, "got nothing, expected a number"),
    ("rms_norm_eps", 0, "got 0, expected a number above 0, at most 1"),
    ("hidden_size", 130, "got 130, expected a multiple of num_attention_heads, 4"),
    ("hidden_size", 2**20, "got 1048576, expected a whole number from 2 to 65536"),
    ("hidden_size", 4, "got 4, expected heads of an even size from 2 to 256"),
    ("hidden_size", True, "got True, expected a whole number"),
    ("head_dim", 64, "got 64, expected 32, which is hidden_size / num_attention_heads"),
    ("num_attention_heads", 3, "got 3, expected a multiple of num_key_value_heads, 2"),
    ("num_attention_heads", 0, "got 0, expected a whole number from 1"),
    ("num_key_value_heads", 0, "got 0, expected a whole number from 1 to 4"),
    ("num_key_value_heads", 8, "got 8, expected a whole number from 1 to 4"),
    ("num_hidden_layers", 10**9, "got 1000000000, expected a whole number from 1 to 1024"),
    ("num_hidden_layers", 1.0, "got 1.0, expected a whole number"),
    ("intermediate_size", -192, "got -192, expected a whole number"),
    ("vocab_size", 0, "got 0, expected a whole number"),
    ("vocab_size", "96", "got '96', expected a whole number"),
    ("max_position_embeddings", 2**40, "got 1099511627776, expected a whole number"),
    ("tie_word_embeddings", "no", "got 'no', expected true or false"),
    ("tie_word_embeddings", None, "got nothing, expected true or false"),
    ("eos_token_id", "<|end|>", "got '<|end|>', expected a token id or a list"),
    ("eos_token_id", [-1], r"got \[-1\], expected a token id or a list"),
    ("quantization", 4, "got 4, expected an object"),
    ("quantization", PACKED | {"bits": 7}, "bits: got 7, expected 2 or 3 or 4 or 5 or 6 or 8"),
    ("quantization", PACKED | {"group_size": 16}, "group_size: got 16, expected 32 or 64 or 128"),
    ("quantization", {"bits": 4}, "group_size: got nothing, expected 32 or 64 or 128"),
    ("quantization", PACKED | {"mode": "mxfp4"}, "mode: got 'mxfp4', expected 'affine'"),
    ("quantization", PACKED | {"lm_head": {"bits": 1}}, "lm_head: bits: got 1, expected 2 or 3"),
    ("quantization", PACKED | {"x": {"group_size": None, "bits": 16}}, "x: bits: got 16, expected 2 or 3"),
]


@pytest.mark.parametrize(("field", "value", "sentence"), FIELDS, ids=lambda x: str(x)[:30])
def test_a_field_that_is_wrong(folder, field, value, sentence):
    change_json(folder, "config.json", **{"head_dim": None, field: value})
    assert_refused(folder, f"config.json: {field}: {sentence}")


def test_two_scalings_that_differ(folder):
    change_json(folder, "config.json", rope_parameters=YARN, rope_scaling=YARN | {"factor": 2.0})
    assert_refused(
        folder, r"config.json: rope_scaling: got .*2\.0.*, expected the scaling of rope_parameters"
    )


def test_an_integer_too_large_for_a_float_is_refused(folder):
    config = folder / "config.json"
    config.write_text(re.sub(r'"rope_theta": [\d.]+', '"rope_theta": 1e400', config.read_text()))
    assert_refused(folder, r"config.json: rope_theta: got inf, expected a number above 0, at most 1e\+15")


def test_weights_of_another_quantizer(folder):
    change_json(folder, "config.json", quantization=None, quantization_config={"quant_method": "awq"})
    assert_refused(
        folder, "config.json: quantization_config: quant_method: got 'awq', expected weights that MLX"
    )


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("head_dim", 63, "got 63, expected an even number"),
        ("head_dim", 512, "got 512, expected a whole number from 2 to 256"),
        ("attention_bias", True, "got True, expected false for qwen3"),
    ],
)
def test_a_field_that_is_wrong_for_qwen3(tmp_path, field, value, sentence):
    folder = write_folder(tmp_path / "model", checkpoint("qwen3", layers=1))
    change_json(folder, "config.json", **{field: value})
    assert_refused(folder, f"config.json: {field}: {sentence}")


TEXTS: list[Case] = [
    ("no UTF-8", content("config.json", b'{"a": "\xff"}'), "is not UTF-8 text"),
    ("no JSON", content("config.json", b"{"), "is not valid JSON"),
    ("a list", content("config.json", b"[1]"), "got a JSON list, expected an object"),
    ("NaN", content("config.json", b'{"rope_theta": NaN}'), "is not valid JSON .NaN is no JSON value"),
    (
        "a field twice",
        content("config.json", b'{"vocab_size": 1, "vocab_size": 2}'),
        "is not valid JSON .duplicate key 'vocab_size'",
    ),
    ("5000 digits", content("config.json", b'{"vocab_size": %s}' % (b"9" * 5000)), "is not valid JSON"),
    ("depth", content("config.json", b'{"a":' * 100_000), "is not valid JSON"),
    ("length", content("config.json", b" " * 2_000_000), "is longer than 1 MiB"),
    ("escapes", content("config.json", b'{"model_type": "\\u001b[2J\\n\\u202e"}'), "model_type: got "),
]


@each(TEXTS)
def test_a_damaged_config_is_refused(folder, damage, sentence):
    damage(folder)
    assert_refused(folder, f"config.json: {sentence}")
