"""Objects of JSON on standard output."""

import json
import sys
from typing import Any


def print_json(record: dict[str, Any], *, indent: int | None = None) -> None:
    """Print an object at once, with its letters as they are where the output's encoding has them all."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    has_all = encoding.lower().replace("-", "").startswith("utf")
    print(json.dumps(record, ensure_ascii=not has_all, indent=indent), flush=True)
