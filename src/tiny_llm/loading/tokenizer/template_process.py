"""Renders chat templates in a sandbox. As a program, it answers each request, a line of JSON, with a line.

It imports nothing of this package, so that it starts fast.
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
GRACE = 1.0  # seconds after the time limit; before, the parent process enforces it
TOO_MUCH_MEMORY = {"error": "the template takes too much memory"}


def render_request(source: str, variables: dict[str, Any], max_chars: int) -> dict[str, str]:
    """{"text": ...} of at most `max_chars` characters, or {"error": ...}."""
    try:
        return {"text": _render(source, variables, max_chars)}
    except MemoryError:
        return TOO_MUCH_MEMORY
    except Exception as error:  # a template can raise any exception
        return {"error": f"{type(error).__name__}: {error}"}


def _render(source: str, variables: dict[str, Any], max_chars: int) -> str:
    """Render with the functions that chat templates expect."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": datetime.now().strftime}
    pieces, length = [], 0
    for piece in environment.from_string(source).generate(variables):
        pieces.append(piece)
        length += len(piece)
        if length > max_chars:
            raise TemplateError(f"the template writes more than {max_chars} characters")
    return "".join(pieces)


def _to_json(value: Any, indent: int | None = None) -> str:
    """JSON without the HTML escapes of jinja2's own filter."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    """Templates call this for messages that they do not support."""
    raise TemplateError(message)


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _limit_time(seconds: float) -> None:
    """End this process after `seconds`, also if the parent process is gone."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + PROCESSOR_SECONDS, hard))


def serve() -> None:
    """Answer requests until the input ends; also end after a request that ran out of memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    _limit_memory()
    for line in sys.stdin:
        request = json.loads(line)
        _limit_time(request.pop("seconds") + GRACE)
        result = render_request(**request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(result), flush=True)
        if result == TOO_MUCH_MEMORY:
            break


if __name__ == "__main__":
    serve()
