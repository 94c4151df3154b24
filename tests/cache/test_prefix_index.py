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
