"""Names of models: shortcuts for those of the hub, and the families that can run."""

from ..checks.types import check_text

FAMILIES = ("qwen2", "qwen3")
SHORTCUTS = {
    **{f"qwen2-{size}": f"Qwen/Qwen2-{size.upper()}-Instruct-MLX" for size in ("0.5b", "1.5b", "7b")},
    **{f"qwen3-{size}": f"mlx-community/Qwen3-{size.upper()}-4bit" for size in ("0.6b", "1.7b", "4b", "8b")},
}
PREFIXES = {"Qwen/Qwen2": "qwen2", "mlx-community/Qwen3": "qwen3"}


def shortcut_name_to_full_name(shortcut_name: str) -> str:
    """The hub's name of a shortcut such as "qwen2-0.5b" (case-insensitive); other names unchanged."""
    check_text("shortcut_name_to_full_name", "shortcut_name", shortcut_name)
    return SHORTCUTS.get(shortcut_name.lower(), shortcut_name)
