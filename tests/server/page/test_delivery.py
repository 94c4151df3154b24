"""The files of the page at `/`: what is sent, with which headers, and that nothing else is."""

from __future__ import annotations

import re

import pytest

from tiny_llm.server.page import files

from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import RunningServer, running

PATHS = [file.path for file in files.page_files()]


def test_every_file_of_the_folder_is_listed_and_no_other() -> None:
    found = (path for path in files.FOLDER.rglob("*.*") if path.suffix in files.TYPES)
    assert sorted(files.NAMES) == sorted(path.relative_to(files.FOLDER).as_posix() for path in found)


@pytest.mark.parametrize("path", PATHS)
def test_a_file_is_sent_with_its_type_and_policy(server: RunningServer, path: str) -> None:
    answer = server.get(path)
    name = files.INDEX if path == "/" else path.removeprefix(files.PREFIX)
    assert (answer.status, answer.body) == (200, (files.FOLDER / name).read_bytes())
    assert answer.headers["content-type"] == files.TYPES["." + name.rpartition(".")[2]]
    assert answer.headers["content-security-policy"] == files.POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-dns-prefetch-control"] == "off"


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere() -> None:
    assert files.POLICY.startswith("default-src 'none';")
    assert "unsafe" not in files.POLICY
    assert re.findall(r"https?://|\*", files.POLICY) == []


def test_the_page_has_nothing_inline_and_names_no_other_host() -> None:
    html = (files.FOLDER / files.INDEX).read_text()
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", html) == []
    assert re.findall(r'(?:src|href)="(?!/page/|#)', html) == []
    namespaces = r"http://www\.w3\.org/(2000/svg|1998/Math/MathML)\b"  # names that nothing is loaded from
    for name in files.NAMES:
        text = re.sub(namespaces, "", (files.FOLDER / name).read_text())
        assert re.findall(r"https?://\w", text) == [], name


def test_scripts_make_no_elements_of_text() -> None:
    made = re.compile(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval|Function)\b")
    scripts = [name for name in files.NAMES if name.endswith(".js")]
    assert [name for name in scripts if made.search((files.FOLDER / name).read_text())] == []


def test_each_module_imports_only_files_that_are_sent() -> None:
    for name in files.NAMES:
        if name.endswith(".js"):
            folder = (files.FOLDER / name).parent
            for imported in re.findall(r'(?m)^import .*"(.+)";$', (files.FOLDER / name).read_text()):
                path = (folder / imported).resolve().relative_to(files.FOLDER.resolve())
                assert path.as_posix() in files.NAMES, (name, imported)


def test_a_known_version_is_not_sent_again(server: RunningServer) -> None:
    first = server.get("/page/main.js")
    tag = first.headers["etag"]
    assert re.fullmatch('"[0-9a-f]{32}"', tag)
    assert first.headers["cache-control"] == "no-cache"
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        again = server.get("/page/main.js", if_none_match=known)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert "content-security-policy" in again.headers
    assert server.get("/page/main.js", if_none_match='"other"').status == 200
    assert server.get("/", if_none_match=tag).status == 200, "the tag of another file"


def test_head_has_the_headers_of_get(server: RunningServer) -> None:
    answer = server.request("HEAD", "/")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) == len((files.FOLDER / files.INDEX).read_bytes())


@pytest.mark.parametrize(
    "path",
    [
        "/page", "/page/", "/page/files.py", "/page/__init__.py", "/page/index.html", "/index.html",
        "/page/../app.py", "/page/%2e%2e/app.py", "/page/chat/..%2f..%2fapp.py", "/page//etc/passwd",
        "/page/main.js/", "/page/MAIN.JS", "/page/main.js%00.css",
    ],
)  # fmt: skip
def test_no_other_path_is_a_file(server: RunningServer, path: str) -> None:
    assert (server.get(path).status, server.get(path).error["code"]) == (404, "not_found")


def test_other_methods_are_refused(server: RunningServer) -> None:
    assert server.request("POST", "/", {}).status == 405


def test_the_page_opens_without_the_key_and_its_requests_do_not() -> None:
    with running(FakeEngine(), api_keys=("secret",)) as server:
        assert [server.get(path).status for path in PATHS] == [200] * len(PATHS)
        assert [server.get(path).status for path in ("/v1/models", "/metrics", "/page/other.js")] == [401] * 3


def test_another_host_name_gets_no_page(server: RunningServer) -> None:
    assert server.get("/", host="elsewhere.example").status == 403
