"""Which extension is loaded; a failed import is tried again, a successful one is remembered."""

from ..support.processes.child import run_python

HIDE_AND_SHOW = """
import sys
from tiny_llm.runtime.extension import load_extension

PACKAGES = ("extensions", "tiny_llm_ext")

class Hide:
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in PACKAGES:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hide)
for attempt in range(2):
    try:
        load_extension()
    except RuntimeError as error:
        print(error)

sys.meta_path.remove(Hide)
found = load_extension()
print(found.__name__)

sys.meta_path.insert(0, Hide)
for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
    del sys.modules[name]
print(load_extension() is found)
"""


def test_a_failure_is_tried_again_and_a_success_is_remembered():
    result = run_python("-c", HIDE_AND_SHOW)
    assert result.returncode == 0, result.stderr
    first, second, name, same = result.stdout.splitlines()
    assert first == second
    assert first.startswith("tiny_llm_ext: no such package")
    assert "pdm run build-ext" in first
    assert name == "extensions.tiny_llm_ext", "the one in the source tree comes first"
    assert same == "True"
