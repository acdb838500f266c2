"""The elementary functions, of a float and of a Decimal alike.

A float goes to the math module. A Decimal is answered to the precision of the active context, by series in which
nothing cancels, or which are given the digits that will. A&S: Abramowitz and Stegun, Handbook of Mathematical
Functions, 1964.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, getcontext, localcontext
from typing import Any, TypeAlias

Number: TypeAlias = Any  # a float or a Decimal: generic over both, and they never meet

GUARD = 10  # digits more than are asked for


def _and_of_floats(
    on_float: Callable[[float], float],
) -> Callable[[Callable[[Decimal], Number]], Callable[[Number], Number]]:
    """Complete a function of a Decimal: GUARD digits more inside, NaN to NaN, and `on_float` for what is no Decimal."""

    def complete(on_decimal: Callable[[Decimal], Number]) -> Callable[[Number], Number]:
        @functools.wraps(on_decimal)
        def function(x: Number) -> Number:
            if not isinstance(x, Decimal):
                return on_float(x)
            if x.is_nan():
                return x
            with localcontext() as context:
                context.prec += GUARD
                y = on_decimal(x)
            return +y

        return function

    return complete


def _sum(terms: Iterable[Decimal]) -> Decimal:
    """The sum of a series, up to the term that no longer counts."""
    total = Decimal(0)
    for term in terms:
        total += term
        if abs(term) <= abs(total).scaleb(-getcontext().prec):
            break
    return total


@_and_of_floats(math.exp)
def exp(x: Decimal) -> Number:
    return x.exp()


@_and_of_floats(math.log)
def log(x: Decimal) -> Number:
    return x.ln()


@_and_of_floats(math.log1p)
def log1p(x: Decimal) -> Number:
    """log(1 + x); for a small x, 2 artanh z = 2 Σ z²ⁿ⁺¹ / (2n + 1) where z = x / (2 + x)        A&S 4.1.29"""
    if abs(x) > Decimal("0.1"):
        return (1 + x).ln()
    z = x / (2 + x)

    def terms() -> Iterator[Decimal]:
        power, n = 2 * z, 1
        while True:
            yield power / n
            power, n = power * z * z, n + 2

    return _sum(terms())


@_and_of_floats(math.sqrt)
def sqrt(x: Decimal) -> Number:
    return x.sqrt()


@_and_of_floats(math.tanh)
def tanh(x: Decimal) -> Number:
    """(1 − e⁻²ˣ) / (1 + e⁻²ˣ), of |x|; the difference costs as many digits as x has zeros before its first."""
    getcontext().prec += max(0, -x.adjusted())
    e = (-2 * abs(x)).exp()
    return ((1 - e) / (1 + e)).copy_sign(x)


@_and_of_floats(math.erf)
def erf(x: Decimal) -> Number:
    """2/√π · e^−x² · Σ 2ⁿ x²ⁿ⁺¹ / (1·3·5 … (2n + 1)), all of one sign; a large x by way of erfc        A&S 7.1.6"""
    if x * x > getcontext().prec:
        return (1 - erfc(abs(x))).copy_sign(x)

    def terms() -> Iterator[Decimal]:
        term, n = x, 1
        while True:
            yield term
            n += 2
            term *= 2 * x * x / n

    return 2 / pi(Decimal).sqrt() * (-x * x).exp() * _sum(terms())


@_and_of_floats(math.erfc)
def erfc(x: Decimal) -> Number:
    """1 − erf(x); for a large x, e^−x²/√π · 1 / (x + ½ / (x + 1 / (x + 3/2 / (x + 2 / (x + …)))))        A&S 7.1.14"""
    if x < 0:
        return 2 - erfc(-x)
    if x * x < getcontext().prec:
        getcontext().prec += int(x * x)  # erf(x) begins with x²/ln 10 nines
        return 1 - erf(x)
    tail = (-x * x).exp()
    if tail == 0:
        return tail
    # All parts of the fraction are positive, so two neighbouring convergents a/b have its value between them.
    a, b, next_a, next_b = Decimal(0), Decimal(1), Decimal(1), x
    half_n = Decimal(0)
    while abs(next_a * b - a * next_b) > (a * next_b).scaleb(GUARD // 2 - getcontext().prec):
        half_n += Decimal("0.5")
        a, next_a = next_a, x * next_a + half_n * a
        b, next_b = next_b, x * next_b + half_n * b
    return tail / pi(Decimal).sqrt() * next_a / next_b


@_and_of_floats(math.sin)
def sin(x: Decimal) -> Number:
    """x − x³/3! + x⁵/5! − …"""
    return _every_other_power(x, 1)


@_and_of_floats(math.cos)
def cos(x: Decimal) -> Number:
    """1 − x²/2! + x⁴/4! − …"""
    return _every_other_power(x, 0)


def _every_other_power(x: Decimal, first: int) -> Number:
    """Σ (−1)ᵏ xⁿ/n! over n = first + 2k, after whole turns are taken from x."""
    getcontext().prec *= 2  # x may lie as close to a root as its own last digit
    getcontext().prec += max(0, x.adjusted())  # what the turns take
    x = x.remainder_near(2 * pi(Decimal))

    def terms() -> Iterator[Decimal]:
        term, n = (x if first else Decimal(1)), first
        while True:
            yield term
            n += 2
            term *= -x * x / (n * (n - 1))

    return _sum(terms())


def pi(number: type) -> Number:
    """π as a float or as a Decimal."""
    return +_pi(getcontext().prec + GUARD) if number is Decimal else math.pi


@functools.lru_cache
def _pi(precision: int) -> Decimal:
    """16 arctan(1/5) − 4 arctan(1/239)        Machin 1706"""

    def arctan_of_inverse(m: int) -> Iterator[Decimal]:
        power, n = 1 / Decimal(m), 1
        while True:
            yield power / n
            power, n = -power / (m * m), n + 2

    with localcontext() as context:
        context.prec = precision
        return 16 * _sum(arctan_of_inverse(5)) - 4 * _sum(arctan_of_inverse(239))
