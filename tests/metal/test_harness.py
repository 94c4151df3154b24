"""The harness reports each kind of mistake, in small kernels that make one each."""

import numpy as np
import pytest

from metal_source import SOURCES, inlined

from .attention.run import SLOT_HEADER
from .course import check_reports, result_of
from .harness import places
from .harness.kernel import Kernel
from .harness.signature import signatures
from .harness.toolchain import COMPILERS, BuildError

FRAME = """
#include <metal_stdlib>
using namespace metal;
kernel void f(device const float* x [[buffer(0)]], device float* y [[buffer(2)]],
              constant int& n [[buffer(1)]], uint3 tile [[threadgroup_position_in_grid]],
              uint group [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
              uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float t[64];
  const uint i = thread_index;
BODY
}
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SIMD_BARRIER = "simdgroup_barrier(mem_flags::mem_threadgroup);"
# Kernel bodies for 2 threadgroups of 64 threads, with part of the expected report; empty for correct ones.
BODIES = {
    "exchange over a barrier": (f"t[i] = x[i]; {BARRIER} y[tile.x * 64 + i] = t[63 - i];", ""),
    "exchange without one": (
        "t[i] = x[i]; y[tile.x * 64 + i] = t[63 - i];",
        "t: read after an unordered write",
    ),
    "exchange in a SIMD group": (f"t[i] = x[i]; {SIMD_BARRIER} y[tile.x * 64 + i] = t[i ^ 1];", ""),
    "a SIMD barrier between SIMD groups": (
        f"t[i] = x[i]; {SIMD_BARRIER} y[tile.x * 64 + i] = t[63 - i];",
        "two SIMD groups",
    ),
    "a SIMD barrier for no memory": (
        "t[i] = x[i]; simdgroup_barrier(mem_flags::mem_none); y[tile.x * 64 + i] = t[i ^ 1];",
        "one SIMD group",
    ),
    "two writers of one place": (
        f"t[i & 1] = x[i]; {BARRIER} y[tile.x * 64 + i] = t[lane & 1];",
        "t: write after an unordered write",
    ),
    "a write too early": (
        f"t[i] = x[i]; {BARRIER} float a = t[63 - i]; t[i] = a;",
        "t: write after an unordered read",
    ),
    "two barriers, two rounds": (
        f"t[i] = x[i]; {BARRIER} float a = t[63 - i]; {BARRIER} t[i] = a; y[tile.x * 64 + i] = t[i];",
        "",
    ),
    "memory that was never written": (
        "if (n == 0) t[i] = 0; y[tile.x * 64 + i] = t[i];",
        "uninitialised threadgroup memory: read of t",
    ),
    "a place beyond the array": ("t[i + n] = 1;", "index out of bounds"),
    "a read after the buffer": ("y[tile.x * 64 + i] = x[i + n];", "buffer x: read out of bounds"),
    "a read before the buffer": ("y[tile.x * 64 + i] = (x - n)[i];", "buffer x: read out of bounds"),
    "a write after the buffer": ("y[128 * n + i] = 1;", "buffer y: write out of bounds"),
    "a read far from every buffer": (
        "y[tile.x * 64 + i] = x[long(n) << 30];",
        "1 x read outside of every buffer and array",
    ),
    "a write far from every buffer": (
        "y[long(n) << 30] = x[i];",
        "1 x write outside of every buffer and array",
    ),
    "a constant of the kernel": (
        "const int numbers[] = {3, 1, 4, 1, 5, 9, 2, 6}; y[tile.x * 64 + i] = numbers[n - 64 + (i & 7)];",
        "",
    ),
    "one word from two threadgroups": (
        "y[i] = 1;",
        "buffer y: a place written by two threads, of threadgroups 0 and 1",
    ),
    "one word from two threads": ("y[tile.x * 64 + i / 2] = 1;", "buffer y: a place written by two threads"),
    "a barrier for some": (f"if (group == 0) return; {BARRIER}", "reached by 32 of 64 threads"),
    "two barriers": (f"if (group == 0) {BARRIER}\n else {BARRIER}", "some threads are at line"),
    "a SIMD group at two places": (
        "float s; if (lane < 9) s = simd_sum(1.0f);\n else s = simd_sum(2.0f); y[tile.x * 64 + i] = s;",
        "SIMD group diverges",
    ),
    "a sum of some lanes": ("if (lane < 9) y[tile.x * 64 + i] = simd_sum(1.0f);", "SIMD group diverges"),
    "a SIMD barrier for some": (f"if (lane < 9) {SIMD_BARRIER}", "SIMD group diverges"),
}


def run(body, order=0, compiler=None):
    kernel = Kernel(FRAME.replace("BODY", body), "f", compiler=compiler)
    x = np.arange(64, dtype=np.float32)
    return kernel(
        (2, 1, 1), (64, 1, 1), {"x": x, "y": np.zeros(128, np.float32), "n": np.int32(64)}, order=order
    )


@pytest.mark.parametrize("name", BODIES)
def test_a_mistake_is_reported(name):
    body, expected = BODIES[name]
    for order in (0, 1, 2):
        reports = run(body, order).reports
        assert any(expected in report for report in reports) if expected else reports == []


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_operations_of_a_simd_group(order, compiler):
    body = """
      const float v = x[i];
      const float moved = simd_broadcast(v, ushort(3)) + simd_shuffle_xor(v, ushort(1)) +
                          simd_shuffle(v, ushort(31 - lane));
      y[tile.x * 64 + i] = tile.x == 0 ? simd_sum(v) : simd_max(v) - simd_min(v) + moved;
    """
    outputs, reports = run(body, order, compiler)
    x = np.arange(64, dtype=np.float32).reshape(2, 32)
    lane = np.arange(32)
    assert reports == []
    assert np.array_equal(outputs["y"][:64].reshape(2, 32), np.broadcast_to(x.sum(1, keepdims=True), (2, 32)))
    want = 31 + x[:, 3:4] + x[:, lane ^ 1] + x[:, 31 - lane]
    assert np.array_equal(outputs["y"][64:].reshape(2, 32), want)


MATRICES = """
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;
kernel void f(device const T* x [[buffer(0)]], device const T* y [[buffer(1)]], device OUT* z [[buffer(2)]],
              uint lane [[thread_index_in_simdgroup]]) {
  const uint row = (lane / 4 & 4) + lane / 2 % 4, column = (lane / 4 & 2) * 2 + lane % 2 * 2;
  const uint at = row * 8 + column;
  simdgroup_matrix<T, 8, 8> a, b;
  simdgroup_matrix<OUT, 8, 8> c;
  for (uint i = 0; i < 2; i++) {
    a.thread_elements()[i] = x[at + i];
    b.thread_elements()[i] = y[at + i];
    c.thread_elements()[i] = OUT(1.0f);
  }
  simdgroup_multiply_accumulate(c, a, b, c);
  for (uint i = 0; i < 2; i++) z[at + i] = c.thread_elements()[i];
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("kind", "result"),
    [("float", "float"), ("half", "half"), ("half", "float"), ("bfloat", "bfloat"), ("bfloat", "float")],
)
def test_matrices_of_every_type_are_multiplied(kind, result, compiler):
    """Small integers are exact in every type; as bfloat, they are the upper half of the float."""
    kernel = Kernel(
        MATRICES.replace("OUT", result).replace("T*", f"{kind}*").replace("<T,", f"<{kind},"),
        "f",
        compiler=compiler,
    )
    generator = np.random.default_rng(0)
    x, y = (generator.integers(-3, 4, (8, 8)).astype(np.float32) for _ in range(2))
    outputs, reports = kernel(
        (1, 1, 1), (32, 1, 1), {"x": stored(x, kind), "y": stored(y, kind), "z": stored(0 * x, result)}
    )
    assert reports == []
    assert np.array_equal(outputs["z"], stored(x @ y + 1, result))


def stored(x, kind):
    """The numbers in a Metal type; bfloat as bits."""
    if kind == "bfloat":
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    return x.astype({"float": np.float32, "half": np.float16}[kind])


def test_buffers_are_bound_by_slot_and_const_buffers_are_not_outputs():
    kernel = Kernel(FRAME.replace("BODY", "y[tile.x * 64 + i] = n;"), "f")
    assert kernel.slots == {"x": 0, "y": 2, "n": 1}
    assert list(run("y[tile.x * 64 + i] = n;").outputs) == ["y"]


def test_a_write_to_a_const_buffer_does_not_compile():
    with pytest.raises(BuildError, match=r"read-only|const"):
        run("x[i] = 1;")


def test_too_much_threadgroup_memory_is_refused():
    with pytest.raises(BuildError, match="32772 bytes of threadgroup memory"):
        run("threadgroup float u[8129]; u[i] = 1; t[i] = 1;")


def test_an_array_that_the_optimiser_removes_counts_as_threadgroup_memory():
    with pytest.raises(BuildError, match="of threadgroup memory"):
        run("threadgroup float u[8192]; u[i] = 1;")


def test_a_threadgroup_is_made_of_whole_simd_groups():
    kernel = Kernel(FRAME.replace("BODY", ""), "f")
    with pytest.raises(ValueError, match="33 threads"):
        kernel((1, 1, 1), (33, 1, 1), {})


def test_an_unsupported_argument_is_refused():
    with pytest.raises(ValueError, match="texture2d"):
        signatures("kernel void f(texture2d<float> t [[texture(0)]]) {}")


def test_the_reports_are_the_message_of_a_failing_test():
    check_reports([])
    with pytest.raises(AssertionError, match="buffer x: read out of bounds\nbuffer y: write out of bounds"):
        check_reports(["buffer x: read out of bounds", "buffer y: write out of bounds"])


def test_a_compiler_names_the_line_of_our_source(monkeypatch, tmp_path):
    """As a learner edits the kernel: the text that is compiled has the headers in it."""
    text = (SOURCES / "flash_attention.metal").read_text()
    wrong = text.replace("  const int end = ", "  const int end = nothing + ", 1)
    (tmp_path / "flash_attention.metal").write_text(wrong)
    monkeypatch.setattr(places, "SOURCES", tmp_path)
    row = next(row for row, line in enumerate(wrong.splitlines(), 1) if "nothing" in line)
    with pytest.raises(BuildError, match=rf"flash_attention\.metal:{row}:\d+: .*error.*nothing"):
        Kernel(inlined(wrong), "flash_attention_f32_e128", slot_header=SLOT_HEADER)


def test_only_the_first_test_of_a_kernel_that_does_not_compile_shows_why():
    wrong = FRAME.replace("BODY", "y[i] = nothing;")

    def said():
        with pytest.raises(pytest.fail.Exception) as failure:
            result_of(lambda: Kernel(wrong, "f"))
        assert failure.value.__context__ is None  # pytest would show it, too
        return str(failure.value)

    assert "nothing" in said()
    assert said() == "the kernel does not compile, as a test before this one shows"
