"""Stop strings: the cut depends only on the text, and no text is shown too early or held back too long."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_llm.sampling.stop import StopStrings

TRY = settings(max_examples=400)
TEXT = st.text("abß🦙", max_size=14)
STOPS = st.lists(st.text("abß🦙", min_size=1, max_size=4), max_size=3)


def cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text before the stop string that is complete first, the longest of several."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


@TRY
@given(st.lists(TEXT, max_size=6), STOPS)
def test_pieces_are_cut_like_the_whole_text(pieces, stops):
    strings = StopStrings(stops)
    shown = ""
    for index, piece in enumerate(pieces):
        shown += strings.add(piece)
        arrived = "".join(pieces[: index + 1])
        certain, found = cut(arrived, stops)
        assert strings.found is found
        held = certain[len(shown) :]
        assert certain.startswith(shown)
        assert held == "" if found else not held or any(stop.startswith(held) for stop in stops)
        if found:
            break
    text, found = cut("".join(pieces), stops)
    assert (shown + strings.finish(), strings.found) == (text, found)
    assert strings.add("more") == "" or not found


@pytest.mark.parametrize("stops", [[""], ["a", ""], [7]])
def test_an_invalid_stop_string_is_refused(stops):
    with pytest.raises(ValueError, match=r"^stop: got .+, expected "):
        StopStrings(stops)


def test_a_single_string_is_one_stop_string():
    strings = StopStrings("ab")
    assert (strings.add("b a ab"), strings.found) == ("b a ", True)
