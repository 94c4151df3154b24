"""One HTML file that shows the attention of a prompt: data computed here, scripts that display it."""

from .build import attention_page
from .data import most_tokens

__all__ = ["attention_page", "most_tokens"]
