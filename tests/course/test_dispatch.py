"""From a name to a model class: shortcuts, names of the hub, and the type that a checkpoint gives."""

import pytest

from tiny_llm.course.dispatch import MODELS
from tiny_llm.course.stages import flash_ops
from tiny_llm.models import dispatch_model, shortcut_name_to_full_name
from tiny_llm.models.names import FAMILIES

from ..support.models.checkpoints import checkpoint


@pytest.mark.parametrize(
    ("shortcut", "name"),
    [
        ("qwen2-0.5b", "Qwen/Qwen2-0.5B-Instruct-MLX"),
        ("Qwen2-1.5B", "Qwen/Qwen2-1.5B-Instruct-MLX"),
        ("qwen2-7b", "Qwen/Qwen2-7B-Instruct-MLX"),
        ("qwen3-0.6b", "mlx-community/Qwen3-0.6B-4bit"),
        ("qwen3-1.7b", "mlx-community/Qwen3-1.7B-4bit"),
        ("QWEN3-4B", "mlx-community/Qwen3-4B-4bit"),
        ("qwen3-8b", "mlx-community/Qwen3-8B-4bit"),
        ("Someone/Some-Model", "Someone/Some-Model"),
        ("./a folder", "./a folder"),
    ],
)
def test_a_shortcut_has_a_full_name(shortcut, name):
    assert shortcut_name_to_full_name(shortcut) == name


@pytest.mark.parametrize("name", ["Qwen/Qwen2-0.5B-Instruct-MLX", "qwen2-7b", "mlx-community/Qwen3-4B-4bit"])
@pytest.mark.parametrize("week", [1, 2, 3])
def test_a_name_of_the_hub_names_the_family(name, week):
    family = "qwen3" if "Qwen3" in name else "qwen2"
    weights = checkpoint(family, layers=1)
    del weights.args.model_type
    model = dispatch_model(name, weights, week)
    assert family in type(model).__module__
    assert model.mlx_model is weights


@pytest.mark.parametrize("family", list(FAMILIES))
def test_for_other_names_the_checkpoint_gives_the_family(family):
    model = dispatch_model("./a folder", checkpoint(family, layers=1), 2, enable_flash_attn=True)
    assert type(model) is MODELS[family][2]
    assert model.layers_inner[0].self_attn.ops == flash_ops(True)


@pytest.mark.parametrize("model_type", ["gpt2", None])
def test_another_family_is_refused(model_type):
    weights = checkpoint(layers=1)
    weights.args.model_type = model_type
    with pytest.raises(
        ValueError, match=r"^dispatch_model: model_name: got 'a/b' .*expected .*qwen2 or qwen3 or llama"
    ):
        dispatch_model("a/b", weights, 2)


@pytest.mark.parametrize("week", [0, 4])
def test_another_week_is_refused(week):
    with pytest.raises(ValueError, match=rf"^dispatch_model: week: got {week}, expected 1, 2 or 3"):
        dispatch_model("qwen2-7b", checkpoint(layers=1), week)


def test_an_option_that_the_week_does_not_have_is_refused():
    with pytest.raises(TypeError, match="enable_flash_attn"):
        dispatch_model("qwen2-7b", checkpoint(layers=1), 3, enable_flash_attn=True)


def test_the_error_for_a_wrong_object_names_its_type():
    with pytest.raises(ValueError, match=r"^dispatch_model: mlx_model: got a dict, expected"):
        dispatch_model("tiny", {}, 2)


def test_each_family_has_a_model_of_each_week():
    assert MODELS.keys() == FAMILIES.keys()
    assert all(weeks.keys() == {1, 2, 3} for weeks in MODELS.values())
