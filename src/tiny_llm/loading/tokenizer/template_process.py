"""Renders chat templates in a sandbox: the handler of a process (`runtime/worker_program.py`).

It imports nothing of this package, so that the process starts fast.
"""

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY = 2**28  # bytes
MOST_COMPILED = 16  # a template for each model that is served
TOO_MUCH_MEMORY = {"error": "the template takes too much memory"}


def handle(source: str, variables: dict[str, Any], max_chars: int) -> dict[str, str]:
    """{"text": ...} of at most `max_chars` characters, or {"error": ...}."""
    try:
        return {"text": _render(source, variables, max_chars)}
    except MemoryError:
        return TOO_MUCH_MEMORY
    except Exception as error:  # a template can raise any exception
        return {"error": f"{type(error).__name__}: {error}"}


def _render(source: str, variables: dict[str, Any], max_chars: int) -> str:
    pieces, length = [], 0
    for piece in _compiled(source).generate(variables):
        pieces.append(piece)
        length += len(piece)
        if length > max_chars:
            raise TemplateError(f"the template writes more than {max_chars} characters")
    return "".join(pieces)


@lru_cache(maxsize=MOST_COMPILED)
def _compiled(source: str) -> Template:
    """With the functions that chat templates expect. Compiling takes longer than most renderings."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return environment.from_string(source)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, indent: int | None = None) -> str:
    """JSON without the HTML escapes of jinja2's own filter."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    """Templates call this for messages that they do not support."""
    raise TemplateError(message)
