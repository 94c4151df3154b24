"""Settings of all tests. Nothing may import MLX before TF32 is off."""

import os
import signal
from collections import Counter
from collections.abc import Iterator

# MLX on CUDA reads this once, at its start: TF32 keeps 10 bits of a float32 factor, and the tests ask for 24.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

import mlx.core as mx
import pytest
from hypothesis import settings

# Properties are tried on the same examples in every run, and by "explore" on new ones; of a failure it prints
# what to write above the test to see it again. Children of the tests read the same variable.
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile(
    "explore", deadline=None, derandomize=False, print_blob=True
)  # also where CI is set
settings.load_profile(os.environ.get("TINY_LLM_TEST_EXAMPLES", "repeat"))

# Who starts the tests in the background may have them ignore Ctrl-C, and a child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seed_mlx() -> None:
    """Every test starts from the same MLX random state, whichever tests ran before it."""
    mx.random.seed(0)


@pytest.fixture
def on_the_cpu() -> Iterator[None]:
    """For tests of the CPU kernels: MLX prefers a GPU where it has one."""
    with mx.stream(mx.cpu):
        yield


def runs_on_a_gpu(item: pytest.Item) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(value is mx.gpu for value in parameters)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where MLX has no GPU, one case of a test is skipped for all that would run on one."""
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
    """How many processes `-n auto` starts: one for each CPU, at most four, as each has threads of its own."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 4)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with the reasons for which tests were skipped, each of them once."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count} skipped: {reason}")
