"""Renders one chat template in a sandbox. As a program it reads a request as JSON and writes the answer so.

It imports nothing of the package: starting it must cost little.
"""

import contextlib
import json
import sys
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY = 2**28  # bytes
PROCESSOR_SECONDS = 60


def answer(source: str, variables: dict[str, Any], longest: int) -> dict[str, str]:
    """The text of a template, of at most `longest` characters, or what it did wrong."""
    try:
        return {"text": _render(source, variables, longest)}
    except MemoryError:
        return {"error": "the template takes too much memory"}
    except Exception as error:  # a template can raise whatever Python can
        return {"error": f"{type(error).__name__}: {error}"}


def _render(source: str, variables: dict[str, Any], longest: int) -> str:
    """Render with the functions that the templates of chat models expect."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": datetime.now().strftime}
    pieces, length = [], 0
    for piece in environment.from_string(source).generate(variables):
        pieces.append(piece)
        length += len(piece)
        if length > longest:
            raise TemplateError(f"the template writes more than {longest} characters")
    return "".join(pieces)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Unlike jinja's own, without escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    """What templates call for a chat that they cannot write."""
    raise TemplateError(message)


def _limit_resources() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has them
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    request = json.load(sys.stdin)
    _limit_resources()
    json.dump(answer(**request), sys.stdout)
