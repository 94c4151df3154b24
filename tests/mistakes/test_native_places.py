"""C++ and Metal code that learners write: found, emptied, and filled in again."""

import pytest

from tools.learner import extension, native
from tools.learner.tasks import ROOT, all_tasks

PLACES = [(task, place) for task in all_tasks() for place in task.places if not place.is_python]


@pytest.mark.parametrize(("task", "place"), PLACES, ids=[place.name for _, place in PLACES])
def test_an_emptied_place_is_filled_in_with_the_same_code(task, place):
    right = (ROOT / "src" / place.file).read_text()
    messages = {place.name: task.message}
    empty = native.emptied(right, messages)
    assert native.unwritten(empty, messages) == [place.name]
    assert native.filled(empty, right, messages) == right


CODE = """int zero() { return 0; }
template <class T>
static void twice(
    T* x) {
  if (*x) {
    *x += *x;
  }
}
int four() {
  int x = 2;
  twice(&x);
  // Region sum
  x += zero();
  // End of region sum
  return x;
}
"""


def test_a_function_begins_at_its_template_line_and_ends_at_its_brace():
    assert native.written(CODE, "twice") == "".join(CODE.splitlines(keepends=True)[1:8])
    assert '#error "write it"\n}\nint four' in native.emptied(CODE, {"twice": "write it"})


def test_a_region_has_its_markers():
    assert native.written(CODE, "sum") == "  // Region sum\n  x += zero();\n  // End of region sum\n"


def test_code_that_a_learner_wrote_stays():
    messages = {"twice": "write it", "sum": "add it"}
    mine = native.emptied(CODE, messages).replace('#error "add it"', "  x += 0;")
    assert native.unwritten(mine, messages) == ["twice"]
    assert native.filled(mine, CODE, messages) == CODE.replace("x += zero();", "x += 0;")


def test_a_place_that_is_not_there_is_named():
    assert not native.has(CODE, "thrice")
    with pytest.raises(ValueError, match="thrice: got 0 functions or regions"):
        native.written(CODE, "thrice")


def test_a_change_compiles_the_units_that_contain_it_and_kernels_of_one_instruction_set(tmp_path):
    steps = extension.all_steps()

    def units(changed):
        return [extension.object_of(step, tmp_path) for step in extension.changed_units(steps, {changed})]

    (kernels,) = units("src/cpu/attention/online_softmax-inl.h")
    assert kernels.name.endswith("isa_scalar.cpp.o")
    everywhere = units("src/tiny_llm_ext.h")
    assert len(set(everywhere)) == len(everywhere) > 2
    assert units("src/tests/check.h") == []
