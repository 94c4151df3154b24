"""JSON objects on standard output."""

import json
import sys
from typing import Any


def print_json(record: dict[str, Any], *, indent: int | None = None) -> None:
    """Print and flush an object; characters are escaped only if the output's encoding may lack them."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    has_all = encoding.lower().replace("-", "").startswith("utf")
    print(json.dumps(record, ensure_ascii=not has_all, indent=indent), flush=True)
