"""Every Metal file, alone and with its headers inlined, keeps to the language of Apple's compiler."""

import pytest

from metal_source import inlined

from .harness.lint import address_spaces, language_version
from .harness.toolchain import SOURCES

HEADERS = [path for folder in ("kernels", "quantized") for path in (SOURCES / "metal" / folder).glob("*.h")]
FILES = sorted([*SOURCES.rglob("*.metal"), *HEADERS])
KERNELS = [path for path in FILES if path.suffix == ".metal"]

# Bodies of `kernel void f(device float* x, constant int& n)`.
FORBIDDEN = {
    "a pointer into the wrong memory": "threadgroup float* p = x; p[0] = 1;",
    "a constant that loses its const": "device int* p = &n; *p = 1;",
    "a pointer without address space": "float* p = x; *p = 1;",
    "a threadgroup array with a value": "threadgroup float t[2] = {0, 0}; x[0] = t[0];",
    "a constant that is written": "n = 3;",
    "double": "double d = 1.0; x[0] = float(d);",
    "a static local": "static int calls = 0; x[0] = calls++;",
    "new": "int* p = new int(3); x[0] = *p;",
    "max of two types": "uint u = 3; x[0] = metal::max(u, -1);",
    "a function pointer": "int (*p)(int) = twice; x[0] = p(2);",
    "a word of Metal as a name": "float fragment = 1; x[0] = fragment;",
    "the host's library": "x[0] = std::exp(x[1]);",
    "a global variable": "x[0] = global;",
    "a threadgroup array in a function": "x[0] = first();",
}
DECLARATIONS = {
    "a function pointer": "inline int twice(int i) { return 2 * i; }",
    "a global variable": "float global = 1;",
    "a threadgroup array in a function": "inline float first() { threadgroup float t[2]; return t[0]; }",
}


def write(folder, declaration, body):
    path = folder / "kernel.metal"
    arguments = "device float* x [[buffer(0)]], constant int& n [[buffer(1)]]"
    path.write_text(f"{declaration}\nkernel void f({arguments}) {{ {body} }}\n")
    return path


def test_the_files_are_found():
    assert KERNELS
    assert len(FILES) > len(KERNELS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_address_spaces_are_right(path):
    assert address_spaces(path) == ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_language_is_cpp_14(path):
    assert language_version(path) == ""


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.name)
def test_the_inlined_source_keeps_the_rules(path, tmp_path):
    single = tmp_path / path.name
    single.write_text(inlined(path.read_text()))
    assert '#include "' not in single.read_text()
    assert address_spaces(single) == ""
    assert language_version(single) == ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_metal_file_is_ascii(path):
    """MLX passes the source to Apple's compiler as ASCII."""
    assert path.read_bytes().isascii()


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_construct_that_metal_forbids_is_found(name, tmp_path):
    path = write(tmp_path, DECLARATIONS.get(name, ""), FORBIDDEN[name])
    assert "error:" in address_spaces(path)


def test_constructs_that_metal_allows_are_accepted(tmp_path):
    arrays = "threadgroup float t[32]; threadgroup float* p = t; thread float r[2] = {1, 2};"
    assert address_spaces(write(tmp_path, "", f"{arrays} p[0] = r[n]; x[0] = p[0];")) == ""


def test_a_construct_of_cpp_17_is_found(tmp_path):
    path = write(tmp_path, "", "if (float y = x[0]; y > 0) x[1] = y;")
    assert "error:" in language_version(path)
