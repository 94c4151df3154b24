"""The names of models, and the errors for other names."""

import pytest

from tiny_llm.errors import ArgumentTypeError
from tiny_llm.loading import LoadError, find_folder, load
from tiny_llm.loading.find import EMBEDDED, local_folder
from tiny_llm.models.names import SHORTCUTS

from .folders import write_folder


@pytest.mark.parametrize("name", ["qwen2-0.5b", "QWEN3-4B", "Qwen/Qwen2-0.5B-Instruct", "a/b.c-d_e"])
def test_names_of_the_hub(name):
    assert local_folder(name) is None


def test_a_folder_takes_precedence_over_a_name_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "Someone" / "Small")
    assert find_folder("Someone/Small").samefile(tmp_path / "Someone" / "Small")


def test_the_home_folder_has_its_short_form(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_folder(tmp_path / "model")
    assert find_folder("~/model") == tmp_path / "model"


OTHERS = [
    "",
    " ",
    "gpt",
    "tinyy",
    "random",
    "./no/such/folder",
    "a/b/c",
    "../x",
    "/no/such",
    "a/..",
    "a/../b",
]
STRANGE = ["a\0b", "x" * 5000, "http://example.org/x", "ä/b", "-a/b"]


@pytest.mark.parametrize("name", OTHERS + STRANGE, ids=lambda name: ascii(name)[:30])
def test_unknown_names_are_refused_with_a_list_of_known_ones(name):
    with pytest.raises(LoadError) as refusal:
        load(name)
    if len(name) < 100:
        assert str(refusal.value).endswith("a folder, or random:<shortcut>")
        assert all(shortcut in str(refusal.value) for shortcut in SHORTCUTS)


@pytest.mark.parametrize("name", ["random:", "random:tiny", "random:qwen2-72b", "random:../x"])
def test_a_random_model_has_the_shape_of_a_shortcut(name):
    with pytest.raises(LoadError, match=r"^random:.* after 'random:', expected one of qwen2-0\.5b, "):
        load(name)


def test_a_random_model_has_no_folder():
    with pytest.raises(LoadError, match="has no folder"):
        find_folder("random:qwen2-0.5b")


def test_a_file_is_refused_with_its_folder(folder):
    with pytest.raises(LoadError, match=f"is a file; give its folder, {folder}$"):
        load(str(folder / "model.safetensors"))


def test_a_path_is_a_name_too():
    assert load(EMBEDDED).folder == EMBEDDED


@pytest.mark.parametrize("name", [None, 3, ["tiny"]])
def test_other_types_than_names_are_refused(name):
    with pytest.raises(ArgumentTypeError, match=r"^load: name: got .*, expected a str or a Path$"):
        load(name)


def test_the_name_of_the_embedded_model_is_case_insensitive():
    assert local_folder("Tiny") == EMBEDDED
