"""mx.vmap of packed sequences and of their gradients: each entry as alone, in every bit."""

import itertools

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention_varlen

from ...support.attention.packed import packed
from ...support.cases import lengths, normal
from ...support.native import last_run
from ...support.refusal import refused
from ...support.tolerance import same_bits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

CALLS = [packed([5, 33, 0], [70, 33, 4], E=8, seed=seed) for seed in range(3)]
# Of each entry: query, key, value and the first rows, which may differ from entry to entry.
ENTRIES = [
    (*call[:3], lengths(*q), lengths(*k))
    for call, q, k in zip(
        CALLS,
        ([0, 5, 38, 38], [0, 1, 30, 38], [0, 0, 0, 38]),
        ([0, 70, 103, 107], [0, 50, 50, 107], [0, 107, 107, 107]),
        strict=True,
    )
]

NAMES = ("query", "key", "value", "cu_seqlens_q", "cu_seqlens_k")
MAPPED = [NAMES, *((name,) for name in NAMES), ("query", "cu_seqlens_k"), ("value", *NAMES[3:])]


def attend(query, key, value, *begins, **options):
    return flash_attention_varlen(query, key, value, *begins, causal=True, return_lse=True, **options)


def gradients(query, key, value, *begins, **options):
    cotangents = [normal(*query.shape, seed=11), normal(*query.shape[:2], seed=12)]
    return mx.vjp(lambda *x: list(attend(*x, *begins, **options)), [query, key, value], cotangents)[1]


@pytest.mark.parametrize("function", [attend, gradients])
@pytest.mark.parametrize("mapped", MAPPED, ids="-".join)
def test_over_inputs(mapped, function):
    mapped = [name in mapped for name in NAMES]
    inputs = [mx.stack(x) if m else x[0] for m, x in zip(mapped, zip(*ENTRIES, strict=True), strict=True)]
    together = mx.vmap(function, in_axes=tuple(0 if m else None for m in mapped))(*inputs)
    mx.eval(together)
    assert last_run()["path"].startswith("cpu.")
    for i in range(3):
        alone = function(*(x[i] if m else x for m, x in zip(mapped, inputs, strict=True)))
        assert same_bits(alone, [x[i] for x in together])


@pytest.mark.parametrize("function", [attend, gradients])
@pytest.mark.parametrize("name", ["sinks", "q_lens", "kv_start", "kv_lens"])
def test_over_an_option(name, function):
    values = {
        "sinks": normal(3, 4),
        "q_lens": mx.array([[5, 33, 0], [1, 0, 0], [5, 7, 0]]),
        "kv_start": mx.array([[0, 1, 4], [70, 33, 0], [7, 3, 2]]),
        "kv_lens": mx.array([[0, 33, 4], [70, 33, 0], [7, 3, 2]]),
    }[name]
    together = mx.vmap(lambda x: function(*ENTRIES[0], **{name: x}))(values)
    for i in range(3):
        assert same_bits(function(*ENTRIES[0], **{name: values[i]}), [x[i] for x in together])


def test_a_map_in_a_map_over_other_axes():
    """An axis in the middle, and an inner map of the first rows alone."""
    query = mx.stack([call.query for call in CALLS], axis=1)
    begins = mx.stack([entry[3] for entry in ENTRIES])
    key, value, k_begins = ENTRIES[0][1], ENTRIES[0][2], ENTRIES[0][4]

    def of_each_begin(query):
        return mx.vmap(lambda begin: attend(query, key, value, begin, k_begins)[0])(begins)

    together = mx.vmap(of_each_begin, in_axes=1)(query)
    for i, j in itertools.product(range(3), repeat=2):
        assert mx.array_equal(together[i, j], attend(query[:, i], key, value, begins[j], k_begins)[0])


def test_the_gradient_of_a_map_sums_over_shared_inputs():
    queries = mx.stack([call.query for call in CALLS])
    key, value, *begins = ENTRIES[0][1:]

    def loss(key, value):
        return mx.vmap(lambda q: attend(q, key, value, *begins)[0])(queries).square().sum()

    def one_by_one(key, value):
        return sum(attend(q, key, value, *begins)[0].square().sum() for q in queries)

    got, want = (mx.grad(f, argnums=(0, 1))(key, value) for f in (loss, one_by_one))
    assert all(mx.abs(x - y).max() <= 1e-5 * mx.abs(y).max() for x, y in zip(got, want, strict=True))


def test_a_compiled_map_serves_other_values():
    mapped = mx.compile(mx.vmap(attend, in_axes=(0, 0, 0, 0, None)))
    inputs = [mx.stack(x) for x in zip(*ENTRIES, strict=True)]
    for order in ([0, 1, 2], [2, 0, 1]):
        given = [x[mx.array(order)] for x in inputs[:4]]
        together = mapped(*given, inputs[4][0])
        for i, n in enumerate(order):
            assert same_bits(attend(*ENTRIES[n][:4], inputs[4][0]), [x[i] for x in together])


@pytest.mark.parametrize("E", [8, 257], ids=["kernel", "reference"])
@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("cu_seqlens_q", {3: [0, 5, 4, 38]}),
        ("cu_seqlens_q", {3: [0, 5, 37, 37]}),
        ("cu_seqlens_k", {4: [1, 70, 103, 107]}),
    ],
)
def test_bad_lengths_of_one_entry_are_refused(argument, wrong, E):
    query, key, value = (x[..., :1] * mx.ones(E) for x in ENTRIES[0][:3])
    begins = [mx.stack([ENTRIES[0][n], lengths(*wrong.get(n, ENTRIES[0][n].tolist()))]) for n in (3, 4)]
    mapped = mx.vmap(lambda *x: attend(query, key, value, *x, on_fallback="allow"))
    with refused(argument, RuntimeError, "flash_attention_varlen"):
        mx.eval(mapped(*begins))
