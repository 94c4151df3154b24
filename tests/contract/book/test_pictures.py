"""The drawings of the book: each is used, describes itself, and takes its colours from the page."""

import re
from xml.etree import ElementTree

import pytest

from ...support.processes.child import ROOT

BOOK = ROOT / "book"
PICTURES = sorted((BOOK / "pictures").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
CLASSES = set(re.findall(r"\.picture \.(\w+)", (BOOK / "static/book.css").read_text()))
each_picture = pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)


def test_every_picture_is_in_a_page_and_every_page_has_its_pictures():
    used = {
        name
        for page in BOOK.rglob("*.md")
        for name in re.findall(r"^```\{picture\} (\S+)$", page.read_text(), re.M)
    }
    assert used == {path.stem for path in PICTURES}


@each_picture
def test_a_picture_has_a_title_and_a_description(path):
    title, description, *_ = ElementTree.parse(path).getroot()
    assert (title.tag, description.tag) == (f"{SVG}title", f"{SVG}desc")
    assert len(title.text.split()) > 3
    assert len(description.text.split()) > len(title.text.split())


@each_picture
def test_a_picture_has_no_colours_of_its_own(path):
    for element in ElementTree.parse(path).iter():
        assert not {"fill", "stroke", "style"}.intersection(element.keys())
        assert set(element.get("class", "").split()) <= CLASSES
