"""The scalar references, against numbers worked out by hand or known to fifty digits.

Two convenient numbers: scores of 0 and ln 3 weigh 1 : 3, and 2 tanh(ln 3 / 2) = 1.
"""

import math
import random
from collections import Counter
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.oracle import reference
from npformer.oracle.reference import (
    alibi_bias,
    alibi_slopes,
    attention,
    attention_weights,
    cross_entropy,
    dropout,
    elementary,
    embedding,
    gelu,
    gelu_tanh,
    layer_norm,
    linear,
    log_softmax,
    merge_heads,
    relu,
    rms_norm,
    rotary,
    sigmoid,
    silu,
    sinusoidal_positions,
    softmax,
    split_heads,
    tanh,
)
from npformer.oracle.reference.may_attend import may_attend
from npformer.oracle.reference.nested import at, depth, each_row

INF, NAN, LN3 = math.inf, math.nan, math.log(3)


@pytest.fixture(autouse=True)
def sixty_digits():
    with localcontext() as context:
        context.prec = 60
        yield


def flat(x):
    return [entry for part in x for entry in flat(part)] if isinstance(x, list | tuple) else [x]


def decimals(x):
    """The array with each float as the Decimal that it is; what is no float stays."""
    if isinstance(x, list | tuple):
        return type(x)(decimals(part) for part in x)
    return Decimal(x) if isinstance(x, float) else x


def array(rng, *shape):
    return [array(rng, *shape[1:]) for _ in range(shape[0])] if shape else rng.gauss(0, 2)


def booleans(rng, *shape):
    return [booleans(rng, *shape[1:]) for _ in range(shape[0])] if shape else rng.random() < 0.6


def near(expected, rel=1e-14):
    """Equal in shape, and in each entry to `rel` of it (to 1e-300 where it is 0)."""
    if isinstance(expected, list):
        return [near(part, rel) for part in expected]
    return pytest.approx(expected, rel=rel, abs=1e-300, nan_ok=True)


def same_digits(actual, digits):
    """A Decimal that begins with these digits, the last of which is rounded."""
    expected = Decimal(digits)
    return abs(actual - expected) <= expected.copy_abs().scaleb(1 - len(expected.as_tuple().digits))


# Elementary functions


@pytest.mark.parametrize(
    "name, x, digits",
    [
        ("exp", "1", "2.718281828459045235360287471352662497757247093699959575"),
        ("log", "2", "0.69314718055994530941723212145817656807550013436025525412"),
        ("sqrt", "2", "1.4142135623730950488016887242096980785696718753769480732"),
        ("log1p", "1e-30", "9.999999999999999999999999999995E-31"),  # x − x²/2 + …
        ("log1p", "1", "0.69314718055994530941723212145817656807550013436025525412"),
        ("tanh", "1", "0.7615941559557648881194582826047935904127685972579365516"),
        ("tanh", "-1e-20", "-9.9999999999999999999999999999999999999996666666666666667E-21"),  # x − x³/3
        ("erf", "1", "0.84270079294971486934122063508260925929606699796630290846"),
        ("erf", "-10", "-0.9999999999999999999999999999999999999999999979115124162375"),
        ("erfc", "10", "2.088487583762544757000786294957788611560818119321163727E-45"),
        ("erfc", "30", "2.5646562037561116000333972775014471465488897227786170541E-393"),
        ("sin", "1", "0.84147098480789650665250232163029899962256306079837106567"),
        ("sin", "355", "-0.000030144353359488449214330280008650099590255807066324649106"),  # 355 is almost 113 π
        ("sin", "1e100", "-0.37237612366127668826208669555316429571966788356743470236"),
        ("cos", "1e9", "0.83788718136390233438977564355157235605957694808811787858"),
    ],
)
def test_known_digits(name, x, digits):
    assert same_digits(getattr(elementary, name)(Decimal(x)), digits)


def test_pi():
    assert same_digits(elementary.pi(Decimal), "3.141592653589793238462643383279502884197169399375105821")
    assert elementary.pi(float) == math.pi


@given(st.decimals("-80", "80", places=30), st.decimals("-3", "3", places=30))
def test_identities(x, y):
    e, tiny = elementary, Decimal("1e-56")
    assert abs(e.sin(x) ** 2 + e.cos(x) ** 2 - 1) < tiny
    assert abs(e.sin(x + y) - e.sin(x) * e.cos(y) - e.cos(x) * e.sin(y)) < tiny
    assert abs(e.erf(x) + e.erfc(x) - 1) < tiny
    assert abs(e.tanh(y) * (e.exp(2 * y) + 1) - (e.exp(2 * y) - 1)) < tiny * 1000
    if x > 0:
        assert abs(e.exp(e.log(x)) - x) < tiny * 100
        assert abs(e.sqrt(x) ** 2 - x) < tiny * 100
        assert abs(e.exp(e.log1p(x)) - 1 - x) < tiny * 100


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "sqrt", "tanh", "erf", "erfc", "sin", "cos"])
def test_a_decimal_gets_the_digits_that_a_float_gets(name):
    function, rng = getattr(elementary, name), random.Random(name)
    for _ in range(50):
        x = rng.uniform(0.001, 20) * rng.choice([1, 1e-3]) * (rng.choice([1, -1]) if name not in ("log", "sqrt") else 1)
        if name == "log1p" and x <= -1:
            continue
        assert function(x) == getattr(math, name)(x)
        assert float(function(Decimal(x))) == pytest.approx(function(x), rel=1e-14, abs=0)


@pytest.mark.parametrize("x", ["7.4", "8.3", "8.5", "10", "20"])
def test_the_two_ways_to_erfc_meet(x):
    """The same number by the fraction, at a few digits, and by the series, at many."""
    with localcontext() as context:
        context.prec = 40
        by_fraction = elementary.erfc(Decimal(x))
        context.prec = 600
        by_series = elementary.erfc(Decimal(x))
    assert by_fraction != by_series  # not the same way twice
    assert abs(by_fraction / by_series - 1) < Decimal("1e-39")


def test_the_ends_of_the_elementary_functions():
    inf = Decimal("Infinity")
    assert [elementary.tanh(x) for x in (-inf, inf)] == [-1, 1]
    assert [elementary.erf(x) for x in (-inf, inf)] == [-1, 1]
    assert [elementary.erfc(x) for x in (-inf, inf)] == [2, 0]
    assert elementary.erfc(Decimal(10**7)) == 0
    assert elementary.erf(Decimal(0)) == elementary.sin(Decimal(0)) == elementary.log1p(Decimal(0)) == 0
    for name in ("exp", "log", "log1p", "sqrt", "tanh", "erf", "erfc", "sin", "cos"):
        assert getattr(elementary, name)(Decimal("NaN")).is_nan()


# Nested lists


def test_rows_along_each_axis():
    x = [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]], [[12, 13, 14], [15, 16, 17]]]  # (3,2,3)

    def first(row):
        return [row[0]] * len(row)

    assert each_row(first, x, 0) == [x[0], x[0], x[0]]
    assert each_row(first, x, 1) == each_row(first, x, -2) == [[part[0], part[0]] for part in x]
    assert each_row(first, x) == each_row(first, x, 2) == [[[row[0]] * 3 for row in part] for part in x]


def test_an_axis_of_size_one_serves_every_index():
    assert [depth(x) for x in (5, [], [[], []], [[[1, 2]]])] == [0, 1, 2, 3]
    assert at([[5, 6, 7]], 4, 9, 2) == 7
    assert at([[5], [6]], 0, 0, 1, 8) == 6


# Linear maps, activations


def test_linear():
    weight, bias = [[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]], [0.5, 0.25, 0.125]
    assert linear([[[4.0, 5.0]]], weight) == [[[54.0, 108.0, 162.0]]]
    assert linear([4.0, 5.0], weight, bias) == [54.5, 108.25, 162.125]


def test_relu():
    assert relu([[-2.0, 0.0], [0.5, INF]]) == [[0.0, 0.0], [0.5, INF]]
    assert relu(-INF) == 0
    assert math.isnan(relu(NAN))


@pytest.mark.parametrize(
    "function, x, digits",
    [
        (gelu, 1, "0.84134474606854294858523254563203792247791296672660439099"),  # Φ(1)
        (gelu, -12, "-2.131778534493214797235405202214668510871199721014743822E-32"),
        (gelu_tanh, 1, "0.84119199060827670478199577704518386082576147011400943765"),
        (gelu_tanh, -12, "-1.6359854493534810593533793633632016553868542631891792234E-61"),
        (sigmoid, 1, "0.73105857863000487925115924182183627436514464016505651928"),  # e / (e + 1)
        (silu, -200, "-2.7677930534734750612973629139581693708060951646789544188E-85"),  # −200 e⁻²⁰⁰
        (tanh, 1, "0.7615941559557648881194582826047935904127685972579365516"),
    ],
)
def test_activations(function, x, digits):
    assert same_digits(function(Decimal(x)), digits)
    assert function([[float(x)]]) == near([[float(digits)]], rel=1e-13)


def test_sigmoid_and_silu_of_logarithms():
    x = [-LN3, LN3, -math.log(1.5), math.log(1.5)]  # odds of 1 : 3, 3 : 1, 2 : 3, 3 : 2
    assert sigmoid(x) == near([0.25, 0.75, 0.4, 0.6])
    assert silu(x) == near([-LN3 * 0.25, LN3 * 0.75, -math.log(1.5) * 0.4, math.log(1.5) * 0.6])


def test_activations_at_the_far_ends():
    assert sigmoid([-1e4, 0.0, 1e4]) == [0.0, 0.5, 1.0]
    assert sigmoid([-INF, INF]) == [0.0, 1.0]
    for function in (silu, gelu, gelu_tanh):
        assert function([-1e4, 0.0, 1e4]) == [0.0, 0.0, 1e4]
        assert function(Decimal(10000)) == 10000
    for function in (silu, gelu, gelu_tanh, sigmoid, tanh):
        assert math.isnan(function(NAN))


# Softmax


def test_softmax():
    assert softmax([0.0, LN3]) == near([0.25, 0.75])
    assert softmax([1e4, 1e4 + LN3]) == near([0.25, 0.75], rel=1e-11)  # 1e4 + ln 3 is rounded to 1e-12
    assert softmax([-INF, 0.0, 0.0, -1e4]) == [0.0, 0.5, 0.5, 0.0]
    assert softmax([[-INF, -INF], [5.0, 5.0]]) == [[0.0, 0.0], [0.5, 0.5]]
    assert softmax([[0.0, LN3], [LN3, LN3]], axis=0) == near([[0.25, 0.5], [0.75, 0.5]])
    assert softmax([[[0.0, 7.0], [LN3, 7.0]]], axis=1) == near([[[0.25, 0.5], [0.75, 0.5]]])


@pytest.mark.parametrize("row", [[NAN, 0.0], [0.0, NAN], [-INF, NAN], [NAN, -INF]])
def test_softmax_does_not_hide_nan(row):
    assert all(map(math.isnan, softmax(row)))
    assert any(map(math.isnan, log_softmax(row)))


def test_log_softmax():
    assert log_softmax([0.0, LN3]) == near([-math.log(4), math.log(0.75)])
    assert log_softmax([-INF, 2.0, 2.0]) == near([-INF, -math.log(2), -math.log(2)])
    assert log_softmax([-INF, -INF]) == [-INF, -INF]
    assert log_softmax([[0.0], [LN3]], axis=0) == near([[-math.log(4)], [math.log(0.75)]])
    assert log_softmax([1e4, -1e4]) == [0.0, -2e4]
    assert log_softmax([0.0, -200.0]) == near([-math.exp(-200), -200.0])
    almost_0 = log_softmax([Decimal(-200), Decimal(0)])[1]  # −log(1 + e⁻²⁰⁰)
    assert same_digits(almost_0, "-1.3838965267367375306486814569790846854030475823394772094E-87")


# Norms


def test_layer_norm():
    assert layer_norm([[0.0, 2.0]], [1.0, 10.0], [0.5, 0.25], eps=3) == [[0.0, 5.25]]  # ±1 / √(1 + 3)
    y = layer_norm([40000.0, 40001.0, 40002.0, 40003.0], [1.0] * 4, [0.0] * 4)
    assert y == near([n / math.sqrt(1.25001) for n in (-1.5, -0.5, 0.5, 1.5)])
    assert layer_norm([7.0, 7.0, 7.0], [2.0] * 3, [1.0, 2.0, 3.0]) == [1.0, 2.0, 3.0]
    assert layer_norm([-400.0, 400.0, -390.0, 390.0], [1.0] * 4, [0.0] * 4) == near([-1.013, 1.013, -0.987, 0.987], 1e-3)


def test_rms_norm():
    assert rms_norm([[3.0, 4.0]], [1.0, 10.0], eps=12.5) == near([[0.6, 8.0]])  # √(12.5 + 12.5) = 5
    assert rms_norm([1e-3], [1.0]) == near([1 / math.sqrt(2)])  # eps is 1e-6


def test_a_float_option_is_the_binary_number_that_it_is():
    x, gamma, beta = decimals(([1.0, 2.0], [1.0, 1.0], [0.0, 0.0]))
    y = layer_norm(x, gamma, beta)
    assert y == layer_norm(x, gamma, beta, eps=Decimal.from_float(1e-5))
    assert y != layer_norm(x, gamma, beta, eps=Decimal("1e-5"))


# Embedding, dropout, heads


def test_embedding():
    table = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert embedding([[2, 0], [2, 2]], table) == [[[4.0, 5.0], [0.0, 1.0]], [[4.0, 5.0], [4.0, 5.0]]]
    assert embedding(1, table, padding_id=1) == [2.0, 3.0]


def test_dropout():
    x = [[1.0, 2.0], [3.0, 4.0]]
    assert dropout(x, 0.75, [[True, False], [False, True]]) == [[4.0, 0.0], [0.0, 16.0]]
    assert dropout(x, 0.0, [[True, True], [True, True]]) == x
    assert dropout(x, 0.5, None) == x
    assert math.isnan(dropout([NAN], 0.5, [False])[0])  # 0·NaN, as in IEEE arithmetic: dropping hides nothing


def test_heads():
    x = [[[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]]  # (1,2,6)
    y = [[[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]]  # (1,3,2,2)
    assert split_heads(x, 3) == y
    assert merge_heads(y) == x


# Attention: query (B,H,T,K) and so on


def test_attention_of_two_keys():
    query, key, value = [[[[2.0, 0.0, 0.0, 0.0]]]], [[[[0.0] * 4, [LN3, 0.0, 0.0, 0.0]]]], [[[[10.0], [20.0]]]]
    assert attention_weights(query, key) == near([[[[0.25, 0.75]]]])  # 2 ln 3 / √4
    assert attention(query, key, value) == near([[[[17.5]]]])
    assert attention(query, key, value, scale=0.5) == near([[[[17.5]]]])
    assert attention(query, key, value, scale=0) == near([[[[15.0]]]])
    assert attention(query, key, [[[[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]]]) == near([[[[4.0, 5.0, 6.0]]]])


def test_softcap_then_bias():
    query, key = [[[[1.0]]]], [[[[0.0], [LN3]]]]
    e = math.e
    assert attention_weights(query, key, softcap=2) == near([[[[1 / (1 + e), e / (1 + e)]]]])
    assert attention_weights(query, key, softcap=2, bias=[[0.0, -1.0]]) == near([[[[0.5, 0.5]]]])
    assert attention_weights(query, key, scale=2, softcap=4) == near([[[[1 / (1 + e * e), e * e / (1 + e * e)]]]])


def test_a_finite_bias_is_no_mask():
    P = attention_weights([[[[1.0], [1.0]]]], [[[[0.0], [0.0], [0.0]]]], bias=[[-3.4e38] * 3, [-INF, 0.0, 0.0]])
    assert P == near([[[[1 / 3] * 3, [0.0, 0.5, 0.5]]]])


@pytest.mark.parametrize("kind", [float, Decimal])
def test_what_a_query_does_not_see_does_not_matter(kind):
    """NaN in key 1, in value 1 and in bias[0, 1] cannot be seen, and the last query sees nothing."""
    one, nan, inf = kind(1), kind("nan"), kind("inf")
    query, key, value = [[[[one], [one]]]], [[[[one], [nan], [one]]]], [[[[kind(3)], [nan], [kind(5)]]]]
    keep = [[True, False, True], [False, False, False]]
    by_bias = [[one, -inf, one], [-inf, -inf, -inf]]
    for masks in ({"keep": keep}, {"bias": by_bias}, {"keep": keep, "bias": [[one, nan, one], [nan, nan, nan]]}):
        P, y = attention_weights(query, key, **masks), attention(query, key, value, **masks)
        assert P == [[[[kind("0.5"), 0, kind("0.5")], [0, 0, 0]]]]
        assert y == [[[[4], [0]]]]
        assert {type(entry) for entry in flat(P) + flat(y)} == {kind}


def test_what_a_query_sees_is_not_hidden():
    """0 · NaN = NaN where the weight is 0 only by underflow, and only in the rows that see it."""
    query, key, value = [[[[0.0], [1.0]]]], [[[[1e4], [0.0], [0.0]]]], [[[[1.0], [NAN], [2.0]]]]
    assert attention_weights(query, key)[0][0][1] == [1.0, 0.0, 0.0]
    y = attention(query, key, value, keep=[[True, False, True], [True, True, True]])
    assert y == near([[[[1.5], [NAN]]]])


def seen(T, S, **masks):
    """The keys that each query sees."""
    return [[j for j in range(S) if may_attend(0, 0, i, j, **masks)] for i in range(T)]


def test_causal():
    everything = [[0, 1, 2, 3, 4]] * 3
    assert seen(3, 5) == seen(3, 5, causal=None) == seen(3, 5, causal=False) == everything
    assert seen(3, 5, causal=0) == seen(3, 5, causal=True) == [[0], [0, 1], [0, 1, 2]]  # top-left
    assert seen(3, 5, causal=1) == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]  # 1 is not True
    assert seen(3, 5, causal=5 - 3) == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]  # bottom-right
    assert seen(3, 5, causal=-1) == [[], [0], [0, 1]]
    assert Counter(map(len, seen(1, 16, causal=15))) == {16: 1}


def test_window():
    assert seen(4, 4, window=2) == [[0], [0, 1], [1, 2], [2, 3]]
    assert seen(4, 4, window=1) == [[0], [1], [2], [3]]
    assert seen(4, 4, window=(1, 1)) == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3]]
    assert seen(4, 4, window=(0, 2)) == [[0, 1, 2], [1, 2, 3], [2, 3], [3]]
    assert seen(4, 4, window=(1, 1), causal=0) == seen(4, 4, window=2, causal=True) == [[0], [0, 1], [1, 2], [2, 3]]
    assert seen(2, 5, window=2, causal=3) == [[2, 3], [3, 4]]  # around i + c
    assert seen(2, 5, window=(2, 1), causal=False) == [[0, 1], [0, 1, 2]]


def test_the_masks_forbid_together():
    keep, bias = [[True, True, False, True, True]] * 3, [[0.0, -INF, 0.0, 0.0, 0.0]] * 3
    assert seen(3, 5, keep=keep, bias=bias, causal=2, window=(2, 0)) == [[0], [3], [3, 4]]


def test_masks_of_four_axes():
    query, key = [[[[0.0]] * 3] * 2] * 2, [[[[0.0]] * 2] * 2] * 2  # (2,2,3,1), (2,2,2,1)
    padding = [[[[True, True]]], [[[True, False]]]]  # (2,1,1,2)
    per_head = [[[[0.0, -INF]], [[0.0, 0.0]]]]  # (1,2,1,2)
    per_query = [[[[True, False], [False, True], [True, True]]]]  # (1,1,3,2)
    half, first, second = [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]
    assert attention_weights(query, key, keep=padding) == [[[half] * 3] * 2, [[first] * 3] * 2]
    assert attention_weights(query, key, bias=per_head) == [[[first] * 3, [half] * 3]] * 2
    assert attention_weights(query, key, keep=per_query) == [[[first, second, half]] * 2] * 2
    assert attention_weights(query, key, keep=per_query[0][0]) == [[[first, second, half]] * 2] * 2


def test_grouped_heads_are_neighbours():
    query = [[[[1.0]], [[1.0]], [[1.0]], [[1.0]]]]  # H = 4
    key, value = [[[[0.0], [0.0]], [[0.0], [LN3]]]], [[[[10.0], [20.0]], [[30.0], [40.0]]]]  # G = 2
    assert attention_weights(query, key) == near([[[[0.5, 0.5]], [[0.5, 0.5]], [[0.25, 0.75]], [[0.25, 0.75]]]])
    assert attention(query, key, value) == near([[[[15.0]], [[15.0]], [[37.5]], [[37.5]]]])
    assert attention(query, [[key[0][1]]], [[value[0][1]]]) == near([[[[37.5]]] * 4])  # G = 1


def test_attention_dropout():
    query, key, value = [[[[1.0]]]], [[[[0.0], [LN3]]]], [[[[8.0], [16.0]]]]
    assert attention(query, key, value, kept=[[[[True, False]]]], dropout=0.5) == near([[[[4.0]]]])  # 8 · ¼ · 2
    assert attention(query, key, value, kept=[[[[True, False]]]]) == near([[[[2.0]]]])
    assert attention(query, key, value, kept=[[[[False, False]]]], dropout=0.5) == [[[[0.0]]]]
    assert attention(query, key, value, dropout=0.5) == near([[[[14.0]]]])  # no mask, no dropout


# Positions


def test_rotary():
    one_hot = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    c, s, slow_c, slow_s = math.cos(1), math.sin(1), math.cos(0.01), math.sin(0.01)  # 10000^(−2/4) = 1/100
    assert rotary(one_hot, [1] * 4) == near(
        [[c, 0.0, s, 0.0], [0.0, slow_c, 0.0, slow_s], [-s, 0.0, c, 0.0], [0.0, -slow_s, 0.0, slow_c]]
    )
    assert rotary(one_hot, [1] * 4, layout="interleaved") == near(
        [[c, s, 0.0, 0.0], [-s, c, 0.0, 0.0], [0.0, 0.0, slow_c, slow_s], [0.0, 0.0, -slow_s, slow_c]]
    )
    assert rotary([0.0, 1.0, 0.0, 0.0], 3, base=81) == near([0.0, math.cos(1 / 3), 0.0, math.sin(1 / 3)])
    assert rotary(one_hot, [0] * 4) == one_hot


def test_rotary_positions():
    def turn(p):
        return [math.cos(p), math.sin(p)]

    x = [[[[1.0, 0.0]] * 3] * 2] * 2  # (2,2,3,2)
    assert rotary(x, [5, 6, 7]) == near([[[turn(5), turn(6), turn(7)]] * 2] * 2)
    assert rotary(x, [[[5, 6, 7]], [[1, 2, 3]]]) == near(  # (2,1,3)
        [[[turn(5), turn(6), turn(7)]] * 2, [[turn(1), turn(2), turn(3)]] * 2]
    )
    assert rotary(x, [[[5], [6]]]) == near([[[turn(5)] * 3, [turn(6)] * 3]] * 2)  # (1,2,1)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_depends_on_the_distance_alone(layout):
    rng = random.Random(0)
    q, k = decimals(array(rng, 6)), decimals(array(rng, 6))

    def product(m, n):
        return sum(a * b for a, b in zip(rotary(q, m, layout=layout), rotary(k, n, layout=layout), strict=True))

    assert abs(product(1861, 1857) - product(4, 0)) < Decimal("1e-50")
    assert abs(product(0, 4) - product(4, 0)) > Decimal("1e-3")


def test_sinusoidal_positions():
    y = sinusoidal_positions(3, 5)
    assert y[0] == [0.0, 1.0, 0.0, 1.0, 0.0]
    angles = [2.0, 2 / 10000**0.4, 2 / 10000**0.8]
    assert y[2] == near(
        [math.sin(angles[0]), math.cos(angles[0]), math.sin(angles[1]), math.cos(angles[1]), math.sin(angles[2])]
    )
    assert sinusoidal_positions(2, 4, base=16)[1][2] == near(math.sin(0.25))
    assert len(y) == 3
    assert sinusoidal_positions(0, 5) == []


def test_alibi():
    assert alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(1) == [2.0**-8]
    assert alibi_slopes(3) == [2.0**-4, 2.0**-8, 2.0**-2]
    assert alibi_slopes(6) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    assert alibi_slopes(12) == near([*alibi_slopes(8), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    assert alibi_bias(1, 1, 2) == [[[[0.0, -(2.0**-8)]]]]
    assert alibi_bias(2, 2, 3, offset=1) == [[[[-m * 1, 0.0, -m * 1], [-m * 2, -m * 1, 0.0]] for m in (2.0**-4, 2.0**-8)]]


# Loss


def test_cross_entropy():
    logits = [[[0.0, LN3], [LN3, 0.0]], [[0.0, LN3], [NAN, NAN]]]
    total, count = cross_entropy(logits, [[0, 0], [1, -1]], ignore_id=-1)
    assert total == near(math.log(4) + 2 * math.log(4 / 3))
    assert count == 3
    assert cross_entropy([0.0, 1000.0, 0.0], 0) == (1000.0, 1)
    assert cross_entropy([-INF, 0.0, 0.0], 1) == (near(math.log(2)), 1)
    assert cross_entropy([-INF, 0.0, 0.0], 0) == (INF, 1)
    assert cross_entropy([[NAN, 0.0]], [7], ignore_id=7) == (0.0, 0)
    assert cross_entropy([], []) == (0.0, 0)


def test_label_smoothing():
    hit, miss = math.log(4 / 3), math.log(4)
    total, count = cross_entropy([[0.0, LN3], [5.0, 9.0], [0.0, LN3]], [1, -100, 0], ignore_id=-100, label_smoothing=0.2)
    assert total == near((0.9 * hit + 0.1 * miss) + (0.9 * miss + 0.1 * hit))  # 0.1 of each to the other class
    assert count == 2
    assert cross_entropy([-INF, 0.0], 1, label_smoothing=0.2) == (INF, 1)


# Both kinds of number, and no numbers


def random_calls():
    """Name, arrays and options of a call of every reference, with sizes all different."""
    rng = random.Random(7)
    x = array(rng, 2, 3, 5)
    for name in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "softmax", "log_softmax"):
        yield name, (x,), {}
    yield "softmax", (x,), {"axis": 1}
    yield "log_softmax", (x,), {"axis": -3}
    yield "linear", (x, array(rng, 5, 7), array(rng, 7)), {}
    yield "layer_norm", (x, array(rng, 5), array(rng, 5)), {}
    yield "rms_norm", (x, array(rng, 5)), {}
    yield "embedding", ([[0, 3, 1], [2, 2, 0]], array(rng, 4, 5)), {}
    yield "dropout", (x, 0.1, booleans(rng, 2, 3, 5)), {}
    yield "split_heads", (array(rng, 2, 3, 10), 5), {}
    yield "merge_heads", (array(rng, 2, 5, 3, 4),), {}
    query, key, value = array(rng, 2, 6, 5, 4), array(rng, 2, 3, 7, 4), array(rng, 2, 3, 7, 1)
    options = {"keep": booleans(rng, 5, 7), "bias": array(rng, 1, 6, 1, 7), "causal": 2, "window": (4, 0)}
    options |= {"softcap": 1.7, "scale": 0.3}
    yield "attention", (query, key, value), {}
    yield "attention", (query, key, value), options | {"kept": booleans(rng, 2, 6, 5, 7), "dropout": 0.3}
    yield "attention_weights", (query, key), {}
    yield "attention_weights", (query, key), options
    yield "rotary", (array(rng, 2, 3, 5, 6), [0, 1, 2, 50, 1857]), {}
    yield "rotary", (array(rng, 2, 3, 5, 6), [[[3]], [[8]]]), {"layout": "interleaved", "base": 500.5}
    yield "cross_entropy", (array(rng, 2, 3, 5), [[0, 4, 2], [1, 2, 3]]), {"ignore_id": 2, "label_smoothing": 0.1}
    yield "sinusoidal_positions", (11, 7), {}
    yield "alibi_slopes", (12,), {}
    yield "alibi_bias", (5, 3, 4), {"offset": 1}


@pytest.mark.parametrize("name, arguments, options", list(random_calls()))
def test_float_and_decimal_agree(name, arguments, options):
    function = getattr(reference, name)
    plain = function(*arguments, **options)
    if name in ("sinusoidal_positions", "alibi_slopes", "alibi_bias"):
        precise = function(*arguments, **options, number=Decimal)
    else:
        options = {option: decimals(value) for option, value in options.items()}
        precise = function(*map(decimals, arguments), **options)
    count = [1] if name == "cross_entropy" else []  # the second output is an int in both
    assert {type(entry) for entry in flat(plain)[: -1 if count else None]} == {float}
    assert {type(entry) for entry in flat(precise)[: -1 if count else None]} == {Decimal}
    largest = max(map(abs, flat(plain)))
    for approximate, exact in zip(flat(plain), flat(precise), strict=True):
        assert approximate == pytest.approx(float(exact), rel=1e-13, abs=1e-14 * largest)


def test_every_reference_is_called_above():
    assert {name for name, _, _ in random_calls()} == set(reference.__all__)
    assert len(reference.__all__) == 22


@pytest.mark.parametrize("kind", [float, Decimal])
def test_axes_of_length_one(kind):
    one, x = kind(1), [[kind(5)]]
    results = [
        (softmax(x), [[1]]),
        (log_softmax(x), [[0]]),
        (cross_entropy(x, [0], label_smoothing=0.5)[0], 0),
        (layer_norm(x, [one], [kind(3)]), [[3]]),
        (rms_norm(x, [one], eps=0), [[1]]),
        (linear(x, [[kind(2)]], [one]), [[11]]),
        (attention([[x]], [[x]], [[x]], causal=True, softcap=1), [[x]]),
        (rotary(x, [7]), x),  # no pair, so nothing to turn
        (sinusoidal_positions(1, 1, number=kind), [[0]]),
        (alibi_bias(1, 1, 1, number=kind), [[[[0]]]]),
    ]
    for actual, expected in results:
        assert actual == expected
        assert {type(entry) for entry in flat(actual)} == {kind}


def test_empty_axes():
    for function in (relu, gelu, gelu_tanh, silu, sigmoid, tanh, softmax, log_softmax):
        assert [function(x) for x in ([], [[], []], [[[], []]])] == [[], [[], []], [[[], []]]]
    for x in ([], [[], []], [[[]], [[]]]):
        for axis in (0, 1, -1, -3):
            assert softmax(x, axis) == log_softmax(x, axis) == x
        assert linear(x, [[1.0]], [1.0]) == layer_norm(x, [1.0], [1.0]) == rms_norm(x, [1.0]) == x
        assert embedding(x, [[1.0]]) == dropout(x, 0.5, x) == x
    assert rotary([[[]]], []) == rotary([[[]]], [[[]]]) == [[[]]]
    assert rotary([[], []], [5]) == [[], []]  # no heads
    assert split_heads([[]], 2) == [[[], []]]
    assert merge_heads([[[], []]]) == [[]]
    assert cross_entropy([[], []], [[], []]) == (0.0, 0)
    assert alibi_bias(2, 0, 3) == [[[], []]]
    assert alibi_bias(2, 1, 0) == [[[[]], [[]]]]


def test_attention_without_batch_queries_or_keys():
    assert attention([], [], []) == attention_weights([], []) == []
    assert attention([[[]]], [[[[1.0]]]], [[[[1.0]]]]) == attention_weights([[[]]], [[[[1.0]]]]) == [[[]]]
    assert attention([[[[1.0], [1.0]]]], [[[]]], [[[]]], causal=0) == [[[[], []]]]
    assert attention_weights([[[[1.0], [1.0]]]], [[[]]], window=1) == [[[[], []]]]
