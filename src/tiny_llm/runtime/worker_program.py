"""The program of a `WorkerProcess`: answers each request, a line of JSON, with a line, within limits.

`python worker_program.py HANDLER` runs `handle(**request)` of the file HANDLER, which returns a dict;
`MEMORY` there is the limit of the address space in bytes, and the process ends after an answer equal to
`TOO_MUCH_MEMORY` there. Neither file imports this package, so that the process starts fast.
"""

import contextlib
import importlib.util
import json
import signal
import sys
from types import ModuleType

PROCESSOR_SECONDS = 60
GRACE = 1.0  # seconds after the time limit; before, the parent process enforces it


def load_handler(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def limit_time(seconds: float) -> None:
    """End this process after `seconds`, also if the parent process is gone."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + PROCESSOR_SECONDS, hard))


def serve(handler: ModuleType) -> None:
    """Answer requests until the input ends; also end after a request that ran out of memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    limit_memory(handler.MEMORY)
    print("{}", flush=True)  # ready: the time of a request does not include the start
    for line in sys.stdin:
        order = json.loads(line)
        limit_time(order["seconds"] + GRACE)
        result = handler.handle(**order["request"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(result), flush=True)
        if result == handler.TOO_MUCH_MEMORY:
            break


if __name__ == "__main__":
    serve(load_handler(sys.argv[1]))
