"""Settings of all tests. Nothing may import MLX or NumPy before their variables are set."""

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator

# MLX on CUDA reads this once, at its start. TF32 keeps 10 bits of a float32 factor; the tests need 24.
os.environ.setdefault("MLX_ENABLE_TF32", "0")
# NumPy reads this once. Its other threads wait for the next product by spinning, beside our kernels and other
# test processes: with them, tests of kernels take up to three times the CPU.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import mlx.core as mx
import pytest
from hypothesis import settings

# Property tests run the same examples each time; the profile "explore" runs new ones and prints the decorator
# that reproduces a failure. Child processes of the tests read the same variable.
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile(
    "explore", deadline=None, derandomize=False, print_blob=True
)  # also where CI is set
settings.load_profile(os.environ.get("TINY_LLM_TEST_EXAMPLES", "repeat"))

# Tests started in the background of a shell may ignore Ctrl-C, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Modules and tests are never garbage: a search among those of the whole suite takes half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def seed_mlx() -> None:
    """Every test starts from the same MLX random state."""
    mx.random.seed(0)


@pytest.fixture
def on_the_cpu() -> Iterator[None]:
    """For tests of the CPU kernels: MLX uses a GPU by default where there is one."""
    with mx.stream(mx.cpu):
        yield


def runs_on_a_gpu(item: pytest.Item) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(value is mx.gpu for value in parameters)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where MLX has no GPU, only one GPU case of each test is kept, to be skipped with its reason."""
    if mx.is_available(mx.gpu):
        return
    counted, others = set(), set()
    for item in filter(runs_on_a_gpu, items):
        function = item.nodeid.split("[")[0]
        if function in counted:
            others.add(item)
        counted.add(function)
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes of `-n auto`: one for each CPU, at most four, because each has threads of its own."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 4)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each reason for skipped tests once, with its count."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count} skipped: {reason}")
