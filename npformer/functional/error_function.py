"""The error function and its complement, which NumPy lacks.

    erf(x) = 2/√π ∫₀ˣ exp(−t²) dt        erfc(x) = 1 − erf(x)        derf/dx = 2/√π · exp(−x²)

No polynomial follows erf everywhere, so |x| is cut in three, and in each part a quotient of two polynomials gives a small
correction to something that is nearly right, so that the quotient's own rounding hardly counts:

    |x| < 27/32    near:    erf(x)  = x + x·N(x²)
    |x| < 5/4      middle:  erf(x)  = E + M(|x| − 1),  E near erf(1)
    beyond         tail:    erfc(x) = exp(−x² − 9/16 + F(1/x²)) / x,  with another F beyond 20/7

Both functions are needed. Where erf has rounded to 1, erfc is still 1e-20, and 1 − erf would be 0.

Source: Sun Microsystems 1993, fdlibm, s_erf.c: the intervals and the coefficients.
"""

import math
from collections.abc import Sequence

import numpy as np

from npformer.operation import Array

# Numerator and denominator of each quotient, lowest power first.
NEAR = (
    (
        *(1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02),
        *(-5.77027029648944159157e-03, -2.37630166566501626084e-05),
    ),
    (
        *(1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02),
        *(5.08130628187576562776e-03, 1.32494738004321644526e-04, -3.96022827877536812320e-06),
    ),
)
E = 8.45062911510467529297e-01
MIDDLE = (
    (
        *(-2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01),
        *(3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02),
        -2.16637559486879084300e-03,
    ),
    (
        *(1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02),
        *(1.26171219808761642112e-01, 1.36370839120290507362e-02, 1.19844998467991074170e-02),
    ),
)
TAIL_TO_20_7 = (
    (
        *(-9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e01),
        *(-6.23753324503260060396e01, -1.62396669462573470355e02, -1.84605092906711035994e02),
        *(-8.12874355063065934246e01, -9.81432934416914548592e00),
    ),
    (
        *(1.0, 1.96512716674392571292e01, 1.37657754143519042600e02, 4.34565877475229228821e02),
        *(6.45387271733267880336e02, 4.29008140027567833386e02, 1.08635005541779435134e02),
        *(6.57024977031928170135e00, -6.04244152148580987438e-02),
    ),
)
TAIL_BEYOND = (
    (
        *(-9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e01),
        *(-1.60636384855821916062e02, -6.37566443368389627722e02, -1.02509513161107724954e03),
        -4.83519191608651397019e02,
    ),
    (
        *(1.0, 3.03380607434824582924e01, 3.25792512996573918826e02, 1.53672958608443695994e03),
        *(3.19985821950859553908e03, 2.55305040643316442583e03, 4.74528541206955367215e02),
        -2.24409524465858183362e01,
    ),
)


def erf(x: Array) -> Array:
    """The error function of each entry of `x`, float32 or float64, within one unit in the last place.

    A complex x is taken to first order in its imaginary part, erf(a + ib) = erf(a) + ib·erf′(a), which is all that a
    derivative by complex step needs.
    """
    if np.iscomplexobj(x):
        return erf(x.real) + 1j * x.imag * erf_slope(x.real)
    x = np.asarray(x)
    y = np.array(np.sign(x))  # what erf has rounded to from 6 on; NaN stays NaN
    near, middle, tail = parts(x, end=6)
    u = x[near]
    y[near] = u + u * quotient(NEAR, u * u)
    y[middle] *= E + quotient(MIDDLE, np.abs(x[middle]) - 1)
    y[tail] *= 1 - tail_of(np.abs(x[tail]))
    return y


def erfc(x: Array) -> Array:
    """The complement 1 − erf(x), as exact in its small right tail as elsewhere: within 2.5 units in the last place."""
    if np.iscomplexobj(x):
        return erfc(x.real) - 1j * x.imag * erf_slope(x.real)
    x = np.asarray(x)
    y = np.array(1 - np.sign(x))  # 0 on the far right, 2 on the far left; NaN stays NaN
    near, middle, tail = parts(x, end=28)
    u = x[near]
    correction = u * quotient(NEAR, u * u)
    # ½ − (erf − ½) where erf nears ½: there it loses less than 1 − erf, and `lost` is what it does lose.
    half = (u - 0.5) + correction
    lost = correction - (half - (u - 0.5))
    y[near] = np.where(u < 1 / 4, 1 - (u + correction), (0.5 - half) - lost)
    u = x[middle]
    correction = quotient(MIDDLE, np.abs(u) - 1)
    y[middle] = np.where(u < 0, 1 + (E + correction), (1 - E) - correction)
    u = x[tail]
    small = tail_of(np.abs(u))
    y[tail] = np.where(u < 0, 2 - small, small)
    return y


def erf_slope(x: Array) -> Array:
    """derf/dx."""
    slope: Array = 2 / math.sqrt(math.pi) * np.exp(-x * x)
    return slope


def parts(x: Array, end: float) -> tuple[Array, Array, Array]:
    """Which entries lie near, in the middle, and in the tail up to `end`."""
    size = np.abs(x)
    return size < 27 / 32, (27 / 32 <= size) & (size < 5 / 4), (5 / 4 <= size) & (size < end)


def tail_of(x: Array) -> Array:
    """erfc for x ≥ 5/4. With z near x and short enough for z² to be exact, −x² = −z² + (z − x)(z + x)."""
    t = 1 / (x * x)
    f = np.where(x < 1 / 0.35, quotient(TAIL_TO_20_7, t), quotient(TAIL_BEYOND, t))
    z = np.trunc(256 * x) / 256
    large, small = -z * z - 9 / 16, (z - x) * (z + x) + f
    exponent = large + small
    lost = small - (exponent - large)  # what the sum rounded away, to be given back below
    g = np.exp(exponent, dtype=np.float64)  # float32's own exp is off by two units
    y: Array = (g + g * lost) / x
    return y


def quotient(coefficients: tuple[Sequence[float], Sequence[float]], x: Array) -> Array:
    above, below = (polynomial(each, x) for each in coefficients)
    return above / below


def polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """Horner's rule."""
    y = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        y = y * x + coefficient
    return y
