"""Rows of `covering` hold every pair of values of any two factors, and are far fewer than all rows."""

from itertools import combinations, product

from .covering import covering, pairwise

FACTORS = {"M": [1, 2, 3, 7, 8, 9, 16, 20], "bits": [4, 8], "sizes": [(1, 2), (3, 4)], "group": [32, 64, 128]}


def test_every_pair_of_values_occurs():
    rows = covering(FACTORS)
    for a, b in combinations(FACTORS, 2):
        assert {(row[a], row[b]) for row in rows} == set(product(FACTORS[a], FACTORS[b]))
    assert len(rows) <= 1.5 * 8 * 3


def test_pairwise_parametrizes_each_argument_by_name():
    names, cases = pairwise({"M": FACTORS["M"], "L,S": FACTORS["sizes"]}).args
    assert names == ["M", "L", "S"]
    assert {case.values for case in cases} == {(M, L, S) for M in FACTORS["M"] for L, S in FACTORS["sizes"]}
    assert {case.id for case in cases} == {f"{M}-{L}-{S}" for M in FACTORS["M"] for L, S in FACTORS["sizes"]}
