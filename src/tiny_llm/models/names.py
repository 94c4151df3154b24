"""The model families that can run: what their layers have, and shortcuts for names on the hub."""

from typing import NamedTuple

from ..checks.types import check_text


class Family(NamedTuple):
    """How the names of a family's models begin on the hub, its shortcuts, and what its layers have.

    qkv_bias: the products of query, key and value. head_norms: a norm on each query and key head.
    own_head_dim: the config may name the size of a head, which is else hidden_size / num_attention_heads.
    terse: the config may leave out what is as in the first Llama, which others must say.
    """

    hub_prefix: str
    shortcuts: dict[str, str]
    qkv_bias: bool = False
    head_norms: bool = False
    own_head_dim: bool = True
    terse: bool = False


# By `model_type` of config.json.
FAMILIES = {
    "qwen2": Family(
        "Qwen/Qwen2",
        {f"qwen2-{size}": f"Qwen/Qwen2-{size.upper()}-Instruct-MLX" for size in ("0.5b", "1.5b", "7b")},
        qkv_bias=True,
        own_head_dim=False,
    ),
    "qwen3": Family(
        "mlx-community/Qwen3",
        {
            f"qwen3-{size}": f"mlx-community/Qwen3-{size.upper()}-4bit"
            for size in ("0.6b", "1.7b", "4b", "8b")
        },
        head_norms=True,
    ),
    "llama": Family(
        "mlx-community/Llama",
        {
            "llama-3.2-1b": "mlx-community/Llama-3.2-1B-Instruct-4bit",
            "llama-3.2-3b": "mlx-community/Llama-3.2-3B-Instruct-4bit",
            "llama-3.1-8b": "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit",
        },
        terse=True,
    ),
    "mistral": Family(
        "mlx-community/Mistral",
        {"mistral-7b": "mlx-community/Mistral-7B-Instruct-v0.3-4bit"},
        terse=True,
    ),
}
SHORTCUTS = {shortcut: name for family in FAMILIES.values() for shortcut, name in family.shortcuts.items()}


def shortcut_name_to_full_name(shortcut_name: str) -> str:
    """The hub's name of a shortcut such as "qwen2-0.5b" (case-insensitive); other names unchanged."""
    check_text("shortcut_name_to_full_name", "shortcut_name", shortcut_name)
    return SHORTCUTS.get(shortcut_name.lower(), shortcut_name)
