"""From a folder to a model that gives the logits of mlx-lm's loader on the same files."""

import json

import mlx.core as mx
import pytest

from tiny_llm.loading import LoadError, find_folder, load
from tiny_llm.loading.find import EMBEDDED
from tiny_llm.models import dispatch_model
from tiny_llm.models.names import FAMILIES

from ..support.covering import pairwise
from ..support.models.checkpoints import VOCABULARY, checkpoint, each_family, tokens
from ..support.models.logits import assert_logits
from ..support.processes.child import run_python
from .folders import END, arrays_of, change_json, small_tokenizer, write_folder, write_json, write_shards


def our_logits(folder, length=33) -> mx.array:
    model = dispatch_model("a folder", load(str(folder)).mlx_model, 2, dtype=mx.float32)
    return model(tokens(2, length), 0, model.create_kv_cache())


def their_logits(folder) -> mx.array:
    from mlx_lm import utils as utilities  # two seconds, for these tests alone

    model, _ = utilities.load_model(folder)
    model.set_dtype(mx.float32)
    return model(tokens(2, 33))


KINDS = [
    {"bits": 4},
    {"bits": 8, "group_size": 32, "tied": False},
    {"bits": 2},
    {"bits": 3, "group_size": 32},
    {"bits": 5, "tied": False},
    {"bits": 6, "group_size": 128, "intermediate_size": 256},
    {"bits": 4, "group_size": 128, "intermediate_size": 256, "scale_dtype": mx.float32},
    {"bits": None, "scale_dtype": mx.bfloat16},
    {"bits": None, "scale_dtype": mx.float16, "tied": False},
    {"bits": None, "scale_dtype": mx.float32},
]


@pairwise({"family": list(FAMILIES), "shards": [1, 3], "kind": KINDS})
def test_every_kind_of_folder_gives_the_logits_of_the_peer(tmp_path, family, shards, kind):
    folder = write_folder(tmp_path, checkpoint(family, layers=2, **kind), shards=shards)
    assert_logits(our_logits(folder), their_logits(folder))


def test_matrices_may_be_packed_each_in_its_own_way(tmp_path):
    """A part of 8 bits and a part that is not packed, as mlx-lm writes them."""
    weights, wider, dense = (checkpoint(layers=2, bits=bits) for bits in (4, 8, None))
    weights.model.layers[0].mlp.up_proj = wider.model.layers[0].mlp.up_proj
    weights.model.layers[1].self_attn.q_proj = dense.model.layers[1].self_attn.q_proj
    folder = write_folder(tmp_path, weights)
    exceptions = {
        "model.layers.0.mlp.up_proj": {"group_size": 64, "bits": 8},
        "model.layers.0.mlp.down_proj": {"group_size": None, "bits": 4, "mode": "affine"},  # MLX's default
        "model.layers.1.self_attn.q_proj": False,
    }
    change_json(folder, "config.json", quantization={"group_size": 64, "bits": 4} | exceptions)
    assert_logits(our_logits(folder), their_logits(folder))


def test_a_part_that_was_left_dense_without_a_word_is_dense(tmp_path):
    weights = checkpoint(tied=False, layers=1)
    weights.lm_head = checkpoint(tied=False, layers=1, bits=None).lm_head
    folder = write_folder(tmp_path, weights)
    assert_logits(our_logits(folder), their_logits(folder))


def test_what_other_programs_leave_in_files_is_passed_over(folder):
    """A copy of the tied matrix, and a table that follows from the config."""
    expected = our_logits(folder)
    arrays = arrays_of(checkpoint(layers=1))
    extra = {"lm_head.weight": mx.ones((4, 4)), "model.layers.0.self_attn.rotary_emb.inv_freq": mx.ones(16)}
    write_shards(folder, arrays | extra, 1)
    assert mx.array_equal(our_logits(folder), expected)


def test_newer_configs_have_the_base_of_rotations_elsewhere(tmp_path):
    """And then without `head_dim` for Qwen2, and with a list of layer types."""
    folder = write_folder(tmp_path, checkpoint(layers=1))
    expected = our_logits(folder)
    theta = json.loads((folder / "config.json").read_text())["rope_theta"]
    parameters = {"rope_theta": theta, "rope_type": "default"}
    newer = {"rope_parameters": parameters, "layer_types": ["full_attention"]}
    change_json(folder, "config.json", rope_theta=None, head_dim=None, rope_scaling=None, **newer)
    assert mx.array_equal(our_logits(folder), expected)
    change_json(folder, "config.json", rope_parameters=parameters | {"rope_theta": 500.0})
    assert not mx.allclose(our_logits(folder), expected)


@each_family
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_a_longer_context_by_yarn(tmp_path, family, key):
    """For the texts of the test, two thirds are behind the context of the training."""
    folder = write_folder(tmp_path, checkpoint(family, layers=2, max_position_embeddings=12))
    plain = our_logits(folder, 12)
    config = json.loads((folder / "config.json").read_text())
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12}
    write_json(folder, "config.json", config | {"rope_scaling": yarn})
    expected = their_logits(folder)
    if key == "rope_parameters":
        config |= {"rope_scaling": None, "rope_theta": None}
        write_json(folder, "config.json", config | {key: yarn | {"rope_theta": 20000}})
    assert_logits(our_logits(folder), expected)
    assert not mx.allclose(our_logits(folder, 12), plain, atol=0.1)
    assert load(str(folder)).config.max_position_embeddings == 48
    # Without its own field, the context of the training is that of the config; here a user has added the
    # scaling to a newer file.
    del yarn["original_max_position_embeddings"]
    parameters = {"rope_theta": 20000, "rope_type": "default"}
    write_json(folder, "config.json", config | {"rope_scaling": yarn, "rope_parameters": parameters})
    assert_logits(our_logits(folder), expected)


@pytest.mark.parametrize(
    "window",
    [
        {"sliding_window": 16, "max_window_layers": 2},
        {"sliding_window": 512, "max_window_layers": 0},  # as long as the context
        {"sliding_window": None, "max_window_layers": 0},
        {"sliding_window": 16, "max_window_layers": 0, "layer_types": ["full_attention"] * 2},
    ],
    ids=str,
)
def test_a_window_that_no_layer_has_changes_nothing(tmp_path, window):
    folder = write_folder(tmp_path, checkpoint(layers=2))
    expected = our_logits(folder)
    config = json.loads((folder / "config.json").read_text())
    write_json(folder, "config.json", config | {"use_sliding_window": True} | window)
    assert mx.array_equal(our_logits(folder), expected)


@pytest.mark.parametrize("name", ["adapters.safetensors", "adapter_model.safetensors"])
def test_an_adapter_beside_a_model_is_not_applied_and_that_is_said(folder, name):
    expected = our_logits(folder)
    write_json(folder, "adapter_config.json", {"lora_parameters": {"rank": 8}})
    mx.save_safetensors(str(folder / name), {"model.layers.0.mlp.down_proj.lora_a": mx.ones((192, 8))})
    with pytest.warns(
        UserWarning, match=rf"{name}: a LoRA adapter is not applied; merge it into the weights"
    ):
        assert mx.array_equal(our_logits(folder), expected)
    (folder / "config.json").unlink()
    with pytest.raises(LoadError, match=rf": {name}: is a LoRA adapter without a model; merge it"):
        load(str(folder))


def test_fields_of_a_checkpoint(tmp_path):
    folder = write_folder(tmp_path, checkpoint("qwen3", layers=2), shards=2)
    loaded = load(str(folder))
    arrays = arrays_of(checkpoint("qwen3", layers=2))
    assert (loaded.name, loaded.folder) == (str(folder), folder)
    assert loaded.nbytes == sum(array.nbytes for array in arrays.values())
    assert (loaded.config.model_type, loaded.config.vocab_size) == ("qwen3", VOCABULARY)
    assert (loaded.config.quantization.bits, loaded.config.head_dim) == (4, 64)
    assert loaded.mlx_model.args is loaded.config
    assert len(loaded.mlx_model.model.layers) == 2


def test_progress_counts_the_bytes_of_the_weights(tmp_path):
    seen = []
    loaded = load(
        str(write_folder(tmp_path, shards=3)), progress=lambda task, done, total: seen.append((done, total))
    )
    assert seen[0] == (0, loaded.nbytes)
    assert seen[-1] == (loaded.nbytes, loaded.nbytes)
    assert seen == sorted(seen)


def test_several_tokens_may_end_an_answer(folder):
    assert load(str(folder)).tokenizer.eos_token_ids == {VOCABULARY - 1, 7}
    (folder / "generation_config.json").unlink()
    assert load(str(folder)).tokenizer.eos_token_ids == {VOCABULARY - 1}
    change_json(folder, "config.json", eos_token_id=[3, 4])
    assert load(str(folder)).tokenizer.eos_token_ids == {VOCABULARY - 1, 3, 4}
    write_json(folder, "tokenizer_config.json", {})
    tokenizer = load(str(folder)).tokenizer
    assert (tokenizer.eos_token_ids, tokenizer.eos_token_id) == ({3, 4}, 3)


def test_special_tokens_and_templates_come_in_several_forms(folder):
    chat = [{"role": "user", "content": "Hi"}]
    expected = load(str(folder)).tokenizer.apply_chat_template(chat)
    assert expected == f"[user] Hi{END}[assistant]"
    named = [{"name": "tools", "template": "?"}, {"name": "default", "template": "default: {{ eos_token }}"}]
    change_json(folder, "tokenizer_config.json", eos_token={"content": END}, chat_template=named)
    assert load(str(folder)).tokenizer.apply_chat_template(chat) == f"default: {END}"
    (folder / "chat_template.jinja").write_text("a file of its own")
    assert load(str(folder)).tokenizer.apply_chat_template(chat) == "a file of its own"


def test_a_chat_is_rendered_as_text_or_as_ids(folder):
    chat = [{"role": "user", "content": "Hi"}]
    tokenizer = load(str(folder)).tokenizer
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    assert text == tokenizer.apply_chat_template(chat)
    ids = tokenizer.apply_chat_template(chat, tokenize=True)
    assert tokenizer.decode(ids) == text
    assert ids.count(VOCABULARY - 1) == 1  # END is one token


def test_a_base_model_without_a_template_is_an_error(folder):
    change_json(folder, "tokenizer_config.json", chat_template=None)
    tokenizer = load(str(folder)).tokenizer
    with pytest.raises(LoadError, match=r"^chat_template: the model has none"):
        tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])


def test_truncation_and_padding_are_disabled(folder):
    tokenizer = small_tokenizer()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert len(load(str(folder)).tokenizer.encode("hello")) == 5


@pytest.mark.parametrize("name", ["tiny", str(EMBEDDED)])
def test_the_model_that_ships_is_there(name):
    assert find_folder(name) == EMBEDDED
    loaded = load(name)
    ids = loaded.tokenizer.encode("What is 7 + 5?")
    assert loaded.tokenizer.decode(ids) == "What is 7 + 5?"
    assert loaded.tokenizer.eos_token_ids == {0, 2}
    assert loaded.tokenizer.vocab_size == len(loaded.tokenizer.get_vocab()) == loaded.config.vocab_size
    assert loaded.tokenizer.apply_chat_template(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    ) == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_loading_has_no_unneeded_imports():
    program = (
        "import sys; from tiny_llm.loading import load; load('tiny');"
        "print({'mlx_lm', 'transformers', 'huggingface_hub', 'jinja2', 'numpy', 'torch'} & set(sys.modules))"
    )
    result = run_python("-c", program)
    assert (result.stdout, result.stderr) == ("set()\n", "")
