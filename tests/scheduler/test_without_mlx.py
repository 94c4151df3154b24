"""The scheduler runs where MLX is not installed."""

import subprocess
import sys

from ..support.processes.child import ROOT

PROGRAM = """
import sys, types
sys.modules["mlx"] = None  # an import of it is an ImportError
package = types.ModuleType("tiny_llm")  # its own __init__ loads MLX for the course
package.__path__ = [sys.argv[1]]
sys.modules["tiny_llm"] = package
from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import RequestState, Scheduler
scheduler = Scheduler(PagePool(4, 4))
scheduler.add(RequestState("a", [1, 2, 3], max_tokens=2))
print(len(scheduler.plan().rows), "numpy" in sys.modules)
"""


def test_a_step_is_planned_without_mlx() -> None:
    command = [sys.executable, "-c", PROGRAM, str(ROOT / "src" / "tiny_llm")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == ("1 False", "")
