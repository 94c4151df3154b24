"""mx.vmap of attention over pages and of its gradients: each entry as alone, in every bit."""

import itertools

import mlx.core as mx
import pytest

from tiny_llm.attention import paged_attention
from tiny_llm.runtime.extension import load_extension

from ...support.cases import lengths, normal
from ...support.native import last_run
from ...support.refusal import refused
from ...support.tolerance import same_bits

native = load_extension()
pytestmark = pytest.mark.usefixtures("on_the_cpu")

# Of each entry: query, pages, table and contexts. Two sequences share page 1.
ENTRIES = [
    (
        normal(6, 4, 8, seed=n),
        *normal(2, 5, 2, 4, 8, seed=10 + n),
        mx.array(table, dtype=mx.int32),
        lengths(*contexts),
    )
    for n, (table, contexts) in enumerate(
        [
            ([[1, 0, 2], [1, 4, 3]], (7, 12)),
            ([[1, 2, 3], [1, 0, 4]], (9, 3)),
            ([[0, 4, 2], [1, 3, 0]], (0, 8)),
        ]
    )
]
ROWS = [0, 4, 6]
NAMES = ("query", "keys", "values", "table", "contexts")
MAPPED = [NAMES, *((name,) for name in NAMES), ("query", "table"), ("values", "table", "contexts")]


def attend(query, *pages, operation=paged_attention, **options):
    options = {"causal": True, "cu_seqlens_q": ROWS} | options
    return operation(query, *pages, return_lse=True, **options)


def gradients(query, key_pages, value_pages, table, contexts, **options):
    cotangents = [normal(*query.shape, seed=11), normal(*query.shape[:-1], seed=12)]
    both = lambda *x: list(attend(*x, table, contexts, **options))  # noqa: E731
    return mx.vjp(both, [query, key_pages, value_pages], cotangents)[1]


def stacked(mapped):
    return [mx.stack(x) if m else x[0] for m, x in zip(mapped, zip(*ENTRIES, strict=True), strict=True)]


def check(function, inputs, mapped, **options):
    axes = tuple(0 if m else None for m in mapped)
    together = mx.vmap(lambda *x: function(*x, **options), in_axes=axes)(*inputs)
    mx.eval(together)
    assert last_run()["path"].startswith("cpu.")
    for i in range(3):
        alone = function(*(x[i] if m else x for m, x in zip(mapped, inputs, strict=True)), **options)
        assert same_bits(alone, [x[i] for x in together])


@pytest.mark.parametrize("function", [attend, gradients])
@pytest.mark.parametrize("mapped", MAPPED, ids="-".join)
def test_over_inputs(mapped, function):
    mapped = [name in mapped for name in NAMES]
    check(function, stacked(mapped), mapped)


@pytest.mark.parametrize("dtype", [mx.uint64, mx.uint8], ids=str)
def test_tables_and_contexts_of_any_integers(dtype):
    """A table of bytes counts the pages of one entry, not those of all."""
    query, key_pages, value_pages, *rest = stacked([True] * 5)
    pools = [mx.repeat(x, 30, axis=1) for x in (key_pages, value_pages)]  # 150 pages an entry
    rest = [(30 * rest[0]).astype(dtype), rest[1].astype(dtype)]
    check(attend, [query, *pools, *rest], [True] * 5)


@pytest.mark.parametrize("function", [attend, gradients])
@pytest.mark.parametrize(
    "mapped", [[True] * 5, [True, False, False, True, True], [False, True, True, False, False]], ids=str
)
def test_a_batch_with_absent_pages(mapped, function):
    """An id of no page stays one: it may not become the page of another entry."""
    _, *pages = stacked(mapped)
    query = normal(*([3] if mapped[0] else []), 2, 4, 3, 8)
    pages[2] = mx.where(pages[2] == 0, -1, mx.where(pages[2] == 3, 6, pages[2]))
    of_the_course = {"operation": native.attention_in_pages, "hide_absent": True, "cu_seqlens_q": None}
    check(function, [query, *pages], mapped, **of_the_course)


@pytest.mark.parametrize("function", [attend, gradients])
@pytest.mark.parametrize("name", ["sinks", "cu_seqlens_q", "q_lens"])
def test_over_an_option(name, function):
    values = {
        "sinks": normal(3, 4),
        "cu_seqlens_q": mx.array([[0, 4, 6], [0, 0, 6], [0, 5, 6]]),
        "q_lens": mx.array([[4, 1], [0, 2], [3, 0]]),
    }[name]
    together = mx.vmap(lambda x: function(*ENTRIES[0], **{name: x}))(values)
    for i in range(3):
        assert same_bits(function(*ENTRIES[0], **{name: values[i]}), [x[i] for x in together])


@pytest.mark.parametrize(
    "mapped", [[True] * 5, [True, False, False, False, True], [False, True, False, True, False]], ids=str
)
def test_the_flat_form(mapped):
    def flat(query, *pages):
        return [native.paged_attention(query, *pages, 0.3, True, num_kv_heads=2, num_heads=4)]

    def flat_gradients(query, key_pages, value_pages, *rest):
        loss = lambda *x: flat(*x, *rest)[0].square().sum()  # noqa: E731
        return mx.grad(loss, argnums=(0, 1, 2))(query, key_pages, value_pages)

    _, *pages = stacked(mapped)
    query = normal(*([3] if mapped[0] else []), 8, 3, 8)
    for function in (flat, flat_gradients):
        check(function, [query, *pages], mapped)


def test_a_map_in_a_map_over_other_axes():
    """Pages mapped in the middle, then tables for each of them."""
    query, _, _, _, contexts = ENTRIES[0]
    keys, values = (mx.stack(x, axis=2) for x in list(zip(*ENTRIES, strict=True))[1:3])
    tables = mx.stack([entry[3] for entry in ENTRIES], axis=1)

    def of_each_table(key_pages, value_pages):
        attend_to = lambda table: attend(query, key_pages, value_pages, table, contexts)[0]  # noqa: E731
        return mx.vmap(attend_to, in_axes=1)(tables)

    together = mx.vmap(of_each_table, in_axes=2)(keys, values)
    for i, j in itertools.product(range(3), repeat=2):
        alone = attend(query, keys[:, :, i], values[:, :, i], tables[:, j], contexts)[0]
        assert mx.array_equal(together[i, j], alone)


def test_the_gradient_of_a_map_sums_over_shared_pages_in_one_pool():
    """Without a pool for each entry: the sum is that of one call with all sequences."""
    queries = mx.stack([entry[0] for entry in ENTRIES])
    _, key_pages, value_pages, table, contexts = ENTRIES[0]

    def mapped(key_pages, value_pages):
        out = mx.vmap(lambda q: attend(q, key_pages, value_pages, table, contexts)[0])(queries)
        return out.square().sum()

    def joined(key_pages, value_pages):
        rows = [0, 4, 6, 10, 12, 16, 18]
        every = mx.concatenate([table] * 3), mx.concatenate([contexts] * 3)
        out = attend(queries.reshape(18, 4, 8), key_pages, value_pages, *every, cu_seqlens_q=rows)[0]
        return out.square().sum()

    got, want = (mx.grad(f, argnums=(0, 1))(key_pages, value_pages) for f in (mapped, joined))
    assert same_bits(want, got)


def test_bad_ids_and_lengths_of_one_entry_are_refused():
    """An id after the last page of an entry would lie in the pages of the next one."""
    query, *pages = stacked([True, True, True, True, True])
    last = pages[2].at[0, 0, 0].add(4)  # 5 of 5 pages
    with refused("block_table", RuntimeError, "paged_attention"):
        mx.eval(mx.vmap(attend)(query, *pages[:2], last, pages[3]))
    begins = mx.array([[0, 4, 6], [0, 4, 5], [0, 4, 6]])
    with refused("cu_seqlens_q", RuntimeError, "paged_attention"):
        mx.eval(mx.vmap(lambda begin: attend(*ENTRIES[0], cu_seqlens_q=begin))(begins))
