"""Which pages are found for the beginning of a sequence."""

from array import array

from tiny_llm.cache.prefix_index import PrefixIndex, digest

PROMPT = array("i", [1, 2, 3, 4, 5, 6])


def indexed(index: PrefixIndex, tokens: array = PROMPT, salt: str = "") -> PrefixIndex:
    """With pages 10, 11 and so on for the tokens."""
    keys: list[bytes] = []
    for number in range(len(tokens) // index.page_size):
        index.register(10 + number, keys, tokens, number, salt)
    index.check()
    return index


def found(index: PrefixIndex, tokens: list[int], salt: str = "") -> list[int]:
    return index.find([], array("i", tokens), len(tokens) // index.page_size, salt)


def test_the_longest_common_beginning_is_found() -> None:
    index = indexed(PrefixIndex(2))
    assert found(index, [1, 2, 3, 4, 5, 6, 7]) == [10, 11, 12]
    assert found(index, [1, 2, 3, 4, 9, 9]) == [10, 11]
    assert found(index, [1, 2, 9, 9, 5, 6]) == [10]
    assert found(index, [9, 2, 3, 4]) == []
    assert found(index, [1]) == []


def test_a_page_is_found_only_after_the_same_pages() -> None:
    """The same tokens at another place, or after others, have other keys and values."""
    index = indexed(PrefixIndex(2))
    assert found(index, [3, 4]) == []
    assert found(index, [7, 8, 3, 4]) == []


def test_another_salt_or_model_finds_nothing() -> None:
    index = indexed(PrefixIndex(2, model="a"), salt="alice")
    assert found(index, [1, 2], salt="alice") == [10]
    assert found(index, [1, 2], salt="bob") == []
    assert found(index, [1, 2]) == []
    first_keys = set()
    chains = [
        ("a", "alice"),
        ("b", "alice"),
        ("a", "bob"),
        ("", "aalice"),
        ("aalice", ""),
        ("a', 'alice", ""),
    ]
    for model, salt in chains:
        keys: list[bytes] = []
        PrefixIndex(2, model).extend(keys, PROMPT, 3, salt)
        first_keys.add(keys[0])
    assert len(first_keys) == len(chains)


def test_token_ids_are_compared_where_hashes_collide() -> None:
    """A digest that is equal for all pages, but not for the beginning of a chain."""
    index = PrefixIndex(2, digest=lambda data: b"same" if data.startswith((b"root", b"same")) else b"root")
    index = indexed(index, PROMPT[:2])
    assert found(index, [1, 2]) == [10]
    assert found(index, [3, 4]) == []
    assert found(index, [1, 2, 1, 2]) == [10]


def test_a_forgotten_page_and_those_after_it_are_not_found() -> None:
    index = indexed(PrefixIndex(2))
    index.forget(11)
    index.check()
    assert found(index, [1, 2, 3, 4, 5, 6]) == [10]
    assert [page in index for page in (10, 11, 12)] == [True, False, True]
    index.register(20, [], PROMPT, 1, "")
    assert found(index, [1, 2, 3, 4, 5, 6]) == [10, 20, 12]


def test_the_first_page_with_a_content_stays() -> None:
    index = indexed(PrefixIndex(2))
    index.register(30, [], PROMPT, 0, "")
    assert found(index, [1, 2]) == [10]
    assert 30 not in index
    index.check()


def test_keys_do_not_depend_on_when_they_were_computed() -> None:
    whole: list[bytes] = []
    parts: list[bytes] = []
    index = PrefixIndex(2)
    index.extend(whole, PROMPT, 3, "s")
    for number in range(4):
        index.extend(parts, PROMPT, number, "s")
    assert whole == parts
    assert len(set(whole)) == 3
    assert len(digest(b"")) == 16


def test_a_page_has_one_content() -> None:
    index = indexed(PrefixIndex(2))
    index.register(10, [], array("i", [7, 8]), 0, "")
    assert (found(index, [1, 2]), found(index, [7, 8])) == ([10], [])
    index.check()


def beginning(index: PrefixIndex, tokens: list[int], salt: str = "") -> tuple[int, int] | None:
    """What follows the full pages that are found, without the last token."""
    keys: list[bytes] = []
    number = len(index.find(keys, array("i", tokens), (len(tokens) - 1) // index.page_size, salt))
    index.check()
    return index.find_beginning(keys, array("i", tokens), number, len(tokens) - 1, salt)


def test_an_end_is_found_as_far_as_its_tokens_are_equal() -> None:
    index = indexed(PrefixIndex(4))
    assert index.remember(20, [], PROMPT, 6, "") is None
    assert 20 in index
    assert set(index) == {10, 20}
    assert beginning(index, [1, 2, 3, 4, 5, 6, 7]) == (20, 2)
    assert beginning(index, [1, 2, 3, 4, 5, 6]) == (20, 1)
    assert beginning(index, [1, 2, 3, 4, 5, 9, 9]) == (20, 1)
    assert beginning(index, [1, 2, 3, 4, 5]) is None
    assert beginning(index, [1, 2, 3, 4, 9, 6, 7]) is None
    assert beginning(index, [1, 2, 3, 9, 5, 6, 7]) is None
    assert found(index, [*PROMPT, 7, 8]) == [10]


def test_an_end_at_the_root_has_the_salt_of_its_sequence() -> None:
    index = PrefixIndex(4)
    index.remember(20, [], PROMPT, 3, "alice")
    assert beginning(index, [1, 2, 3, 4], "alice") == (20, 3)
    assert beginning(index, [1, 2, 3, 4], "bob") is None
    assert beginning(index, [1, 2, 3, 4]) is None


def test_a_full_page_is_found_to_the_token_where_another_text_begins() -> None:
    index = indexed(PrefixIndex(4))
    index.remember(10, [], PROMPT, 4, "")
    assert beginning(index, [1, 2, 9, 9]) == (10, 2)
    assert beginning(index, [1, 2, 3, 4]) == (10, 3)
    assert set(index) == {10}


def test_a_newer_page_takes_the_place_of_an_end() -> None:
    """Also a shorter one. Nothing finds the older end any more, but a full page is still found as a whole."""
    index = indexed(PrefixIndex(4))
    index.remember(10, [], PROMPT, 4, "")
    assert index.remember(20, [], array("i", [1, 2, 3]), 3, "") is None
    assert index.remember(21, [], array("i", [1, 2, 8]), 2, "") == 20
    assert (beginning(index, [1, 2, 3, 9]), 20 in index) == ((21, 2), False)
    assert beginning(index, [*PROMPT, 7]) is None
    assert found(index, [*PROMPT]) == [10]
    index.register(30, [], array("i", [7, 7, 7, 7]), 0, "")
    assert index.remember(30, [], array("i", [7, 7, 7, 7]), 4, "") == 21
    assert beginning(index, [7, 7, 1]) == (30, 2)


def test_an_end_that_grows_or_becomes_full_is_one_page() -> None:
    """Its owner writes on, after another one has given it back."""
    index, keys = PrefixIndex(4), []
    for stop in (2, 3):
        assert index.remember(20, keys, PROMPT, stop, "") is None
        assert beginning(index, [1, 2, 3, 4]) == (20, stop)
    index.register(20, keys, PROMPT, 0, "")
    assert index.remember(20, keys, PROMPT, 4, "") is None
    assert (beginning(index, [1, 2, 3, 4, 9]), found(index, [1, 2, 3, 4])) == (None, [20])
    assert list(index) == [20]


def test_a_forgotten_page_is_no_beginning() -> None:
    for stop in (4, 6):
        index = indexed(PrefixIndex(4))
        index.remember(10, [], PROMPT, 4, "")
        index.remember(20, [], PROMPT, 6, "")
        index.forget(10 if stop == 4 else 20)
        index.forget(99)
        assert beginning(index, [*PROMPT, 7]) is None
        assert set(index) == {20 if stop == 4 else 10}
