"""The model families that can run, and shortcuts for names on the hub."""

from typing import NamedTuple

from ..checks.types import check_text


class Family(NamedTuple):
    """How the names of a family's models begin on the hub, and its shortcuts."""

    hub_prefix: str
    shortcuts: dict[str, str]


# By `model_type` of config.json.
FAMILIES = {
    "qwen2": Family(
        "Qwen/Qwen2",
        {f"qwen2-{size}": f"Qwen/Qwen2-{size.upper()}-Instruct-MLX" for size in ("0.5b", "1.5b", "7b")},
    ),
    "qwen3": Family(
        "mlx-community/Qwen3",
        {
            f"qwen3-{size}": f"mlx-community/Qwen3-{size.upper()}-4bit"
            for size in ("0.6b", "1.7b", "4b", "8b")
        },
    ),
}
SHORTCUTS = {shortcut: name for family in FAMILIES.values() for shortcut, name in family.shortcuts.items()}


def shortcut_name_to_full_name(shortcut_name: str) -> str:
    """The hub's name of a shortcut such as "qwen2-0.5b" (case-insensitive); other names unchanged."""
    check_text("shortcut_name_to_full_name", "shortcut_name", shortcut_name)
    return SHORTCUTS.get(shortcut_name.lower(), shortcut_name)
