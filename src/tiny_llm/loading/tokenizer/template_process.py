"""Renders chat templates in a sandbox. As a program it answers requests, each a line of JSON, as they come.

It imports nothing of the package: starting it must cost little.
"""

import contextlib
import json
import signal
import sys
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY = 2**28  # bytes
PROCESSOR_SECONDS = 60
GRACE = 1.0  # seconds behind the time limit, which is whoever asks to enforce
TOO_MUCH_MEMORY = {"error": "the template takes too much memory"}


def answer(source: str, variables: dict[str, Any], longest: int) -> dict[str, str]:
    """The text of a template, of at most `longest` characters, or what it did wrong."""
    try:
        return {"text": _render(source, variables, longest)}
    except MemoryError:
        return TOO_MUCH_MEMORY
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


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _limit_time(seconds: float) -> None:
    """End this process so much later, whatever it does then, and even if nobody is left to stop it."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + PROCESSOR_SECONDS, hard))


def serve() -> None:
    """Answer until the input ends, or memory does: what is left of it may be too little for the next one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    _limit_memory()
    for line in sys.stdin:
        request = json.loads(line)
        _limit_time(request.pop("seconds") + GRACE)
        result = answer(**request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(result), flush=True)
        if result == TOO_MUCH_MEMORY:
            break


if __name__ == "__main__":
    serve()
