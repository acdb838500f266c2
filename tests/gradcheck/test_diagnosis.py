"""Every kind of fault is named, and whatever a diagnosis says is so.

`Claim` checks a sentence by itself, with other cotangents and a complex step of its own; a sentence that it does not know is
an error.
"""

import copy
import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from math import prod, sqrt

import numpy as np
import pytest

from gradcheck import check
from gradcheck.diagnosis.ratios import constants
from gradcheck.diagnosis.sentences import listed
from gradcheck.places import whereabouts
from npformer.catalogue import OPERATIONS, RandomChooser
from npformer.oracle.self_check import CATALOGUE
from wrong_backwards import WRONG

STEP = 1e-30


def largest(array):
    return np.abs(array).max(initial=0.0)


def close(actual, expected, rtol=1e-7):
    return largest(np.asarray(actual) - expected) <= rtol * largest(expected)


class NotSoError(Exception):
    pass


def demand(truth):
    """Of something that a sentence says besides."""
    if not truth:
        raise NotSoError


class Claim:
    """Sentences about the gradients of op(**arrays)."""

    def __init__(self, op, arrays, stopped=None):
        self.op, self.rng, self.stopped = op, np.random.default_rng(99), stopped or {}
        self.arrays = {name: np.array(array, np.float64) for name, array in arrays.items()}
        self.outputs = self.run(self.arrays)[0]
        self.dys = [self.draw() for _ in range(3)]

    def draw(self):
        return [self.rng.choice([-1, 1], y.shape) * self.rng.uniform(0.5, 1.5, y.shape) for y in self.outputs]

    def run(self, arrays):
        y, backward = self.op(**arrays)
        outputs = [y for y in (y if isinstance(y, tuple) else (y,)) if isinstance(y, np.ndarray | np.generic)]
        return [np.array(y) for y in outputs if y.dtype.kind in "fc"], backward

    def copies(self):
        return {name: array.copy() for name, array in self.arrays.items()}

    def gradient(self, name, dys, backward=None):
        """By the first call of a backward of its own, unless one is given."""
        gradients = (backward or self.run(self.copies())[1])(*map(np.array, dys))
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        return np.array(gradients[list(self.arrays).index(name)], np.float64)

    def truth(self, name, dys, at=None):
        arrays = {**self.copies(), **(at or {})}
        moved = {each: array.astype(np.complex128) for each, array in arrays.items()}
        flat = moved[name].reshape(-1)
        truth = np.zeros(flat.size)
        for entry in range(flat.size):
            flat[entry] += 1j * STEP
            outputs = self.run({each: array.copy() for each, array in moved.items()})[0]
            truth[entry] = sum((dy * np.imag(y)).sum() for dy, y in zip(dys, outputs, strict=True)) / STEP
            flat[entry] = flat[entry].real
        return np.where(self.stopped.get(name, False), 0, truth.reshape(moved[name].shape))

    def known(self, name):
        outputs = dict(zip(self.names_of_outputs(), self.outputs, strict=True))
        return outputs[name.removeprefix("the ")] if name.removeprefix("the ") in outputs else self.arrays[name]

    def names_of_outputs(self):
        return ["output"] if len(self.outputs) == 1 else [f"output{i}" for i in range(len(self.outputs))]

    def is_true(self, sentence):
        pair = re.fullmatch(r"the gradients of (\S+) and (\S+) are swapped", sentence)
        if pair:
            return all(
                close(self.gradient(one, dys), self.truth(two, dys))
                for dys in self.dys
                for one, two in (pair.groups(), pair.groups()[::-1])
            )
        names, what = re.fullmatch(
            r"the gradient of ((?:\S+, of )*\S+(?: and of (?:\d+ more|\S+))?) (.*)", sentence
        ).groups()
        names = [name for name in re.split(r", of | and of ", names) if not name.endswith(" more")]
        return all(self.is_true_of(name, what) for name in names)

    def is_true_of(self, name, what):
        for pattern, judge in RULES.items():
            found = re.fullmatch(pattern, what)
            if found:
                try:
                    return bool(judge(self, name, **found.groupdict()))
                except NotSoError:
                    return False
        raise LookupError(f"no rule for: {what}")

    def pairs(self, name):
        return [(self.gradient(name, dys), self.truth(name, dys)) for dys in self.dys]

    def wrong(self, name):
        with np.errstate(all="ignore"):
            wrong = np.any([~(np.abs(a - t) <= 1e-9 * largest(t)) for a, t in self.pairs(name)], axis=0)
        return wrong & ~np.asarray(self.stopped.get(name, False))


RULES = {}


def rule(pattern):
    def keep(judge):
        RULES[pattern] = judge
        return judge

    return keep


PLACE = r"((?P<place>where it is wrong)(, (?P<where>(?!as if)[^;]*?))?)?(?P<note>(, as if a mean stood for a sum)?; .*)?"


def in_place(claim, name, place, where):
    wrong = claim.wrong(name) if place else np.ones(claim.arrays[name].shape, bool)
    demand(where is None or whereabouts(wrong) == where)
    return [(a[wrong], t[wrong]) for a, t in claim.pairs(name)]


@rule(rf"is zero (everywhere; the truth is not|{PLACE})")
def zero(claim, name, place, where, note):
    nothing = place or not any(claim.gradient(name, dys).any() for dys in claim.dys)
    return nothing and all(not a.any() and t.any() for a, t in in_place(claim, name, place, where))


@rule("is zero to rounding everywhere; the truth is not")
def zero_to_rounding(claim, name):
    return all(largest(a) <= 1e-9 * largest(t) for a, t in claim.pairs(name))


@rule(rf"should be zero (everywhere|{PLACE})")
def should_be_zero(claim, name, place, where, note):
    return all(largest(t) <= 1e-6 * largest(a) for a, t in in_place(claim, name, place, where))


@rule("is not a number (?P<where>.*)")
def not_a_number(claim, name, where):
    return any(not np.isfinite(claim.gradient(name, dys)).all() for dys in claim.dys)


def value_of(text):
    sign = -1 if text[0] == "−" else 1
    above, _, below = text.lstrip("−").partition("/")

    def number(text):
        return sqrt(float(text[1:])) if text[0] == "√" else float(text)

    return sign * number(above) / (number(below) if below else 1)


@rule(rf"is (?P<ratio>\S+) (times|of) the truth ?{PLACE}")
def ratio(claim, name, ratio, place, where, note):
    if note:
        size, places = re.search(r"; (\d+) is the size of (.*)", note).groups()
        for each in re.split(" and of (?=axis |all |the whole)", places):
            demand(size_of(claim, each) == int(size) and re.search(rf"(?<!\d){size}(?!\d)", ratio))
    return all(close(a, value_of(ratio) * t, 1e-6) for a, t in in_place(claim, name, place, where))


def size_of(claim, place):
    axis, name = re.fullmatch(r"(axis \d+|all axes but the last|the whole) of (.+)", place).groups()
    shape = claim.known(name).shape
    if axis.startswith("axis"):
        return shape[int(axis.split()[1])]
    return prod(shape[:-1] if axis.startswith("all") else shape)


@rule(rf"is the truth with the wrong sign ?{PLACE}")
def sign(claim, name, place, where, note):
    return all(close(a, -t) for a, t in in_place(claim, name, place, where))


@rule("is (?P<other>.+) itself(?P<shape>, reshaped)?")
def itself(claim, name, other, shape):
    values = [dys[int(other[2:] or 0)] if re.fullmatch(r"dy\d*", other) else claim.known(other) for dys in claim.dys]
    values = [value.reshape(claim.arrays[name].shape) for value in values]
    return all(np.array_equal(claim.gradient(name, dys), value) for dys, value in zip(claim.dys, values, strict=True))


@rule(
    r"is the truth (transposed|with its axes (?P<a>\d+) and (?P<b>\d+) swapped)"
    r"(?P<reshaped> and then reshaped to \([\d, ]+\))?"
)
def axes(claim, name, a, b, reshaped):
    shape = claim.arrays[name].shape
    a, b = int(a or 0), int(b or 1)
    demand(reshaped == (None if shape[a] == shape[b] else f" and then reshaped to {shape}"))
    return all(close(g, t.swapaxes(a, b).reshape(shape)) for g, t in claim.pairs(name))


@rule(r"is the truth in reverse order along axis (?P<axis>\d)")
def reversed_order(claim, name, axis):
    return all(close(a, np.flip(t, int(axis))) for a, t in claim.pairs(name))


@rule(r"is the truth shifted by (?P<by>\S+) along axis (?P<axis>\d), cyclically")
def shifted(claim, name, by, axis):
    return all(close(a, np.roll(t, int(by.replace("−", "-")), int(axis))) for a, t in claim.pairs(name))


@rule("has the right numbers in the wrong places")
def other_places(claim, name):
    return all(close(np.sort(a, None), np.sort(t, None)) for a, t in claim.pairs(name))


@rule(r"lacks a term: the mean of each row along axis (?P<axis>\d) has to be subtracted")
def mean_of_rows(claim, name, axis):
    return all(close(a - a.mean(int(axis), keepdims=True), t) for a, t in claim.pairs(name))


@rule(r"lacks a term: (?P<y>output\d*) times the sum of each row along axis (?P<axis>\d) has to be subtracted")
def sum_of_rows(claim, name, y, axis):
    return all(close(a - claim.known(y) * a.sum(int(axis), keepdims=True), t) for a, t in claim.pairs(name))


@rule(r"(?P<what>lacks the|has an extra) term ((?P<factor>[\d./e√-]+)·)?dy(?P<j>\d*)")
def term(claim, name, what, factor, j):
    size = (1 if what == "lacks the" else -1) * (value_of(factor) if factor else 1.0)
    return all(close(a + size * dys[int(j or 0)], t, 1e-5) for dys, (a, t) in zip(claim.dys, claim.pairs(name), strict=True))


@rule(r"(?P<what>lacks the|has an extra) factor (?P<factor>.+)")
def factor(claim, name, what, factor):
    less, base, squared = re.fullmatch(r"(1 − )?\(?([^()]+)\)?(²)?", factor).groups()
    z = claim.known(base)
    z = z * z if squared else z
    z = 1 - z if less else z
    return all(close(a, t * z) if what == "has an extra" else close(a * z, t) for a, t in claim.pairs(name))


@rule(r"is the (?P<how>sum|mean) of the truth over axis (?P<axis>\d), repeated along it")
def summed(claim, name, how, axis):
    return all(close(a, getattr(np, how)(t, int(axis), keepdims=True) + 0 * a) for a, t in claim.pairs(name))


@rule(r"lacks a (?P<how>sum|mean) over axis (?P<axis>\d): its own (sum|mean), repeated along it, is the truth")
def unsummed(claim, name, how, axis):
    return all(close(getattr(np, how)(a, int(axis), keepdims=True) + 0 * t, t) for a, t in claim.pairs(name))


@rule("is the true gradient for what is left of dy, which the backward overwrites")
def overwritten(claim, name):
    for dys in claim.dys:
        left = [np.array(dy) for dy in dys]
        claim.run(claim.copies())[1](*left)
        demand(not all(map(np.array_equal, dys, left)))
        if not close(claim.gradient(name, dys), claim.truth(name, left)):
            return False
    return True


@rule("is the true gradient for (?P<text>.+)")
def other_cotangent(claim, name, text):
    def other(dys):
        dy = dys[0]
        if text == "dy rounded to float32":
            return dy.astype(np.float32).astype(np.float64)
        alone = re.fullmatch(r"the (first|last) slice of dy along axis (\d) alone", text)
        without = re.fullmatch(r"dy without its (first|last) slice along axis (\d)", text)
        if alone or without:
            which, axis = (alone or without).groups()
            is_slice = np.zeros_like(dy)
            is_slice[(slice(None),) * int(axis) + (0 if which == "first" else -1,)] = 1
            return dy * (is_slice if alone else 1 - is_slice)
        by, z = re.fullmatch(r"dy( / |·)(.+) instead of dy", text).groups()
        return dy * claim.known(z) if by == "·" else dy / claim.known(z)

    return all(close(claim.gradient(name, dys), claim.truth(name, [other(dys), *dys[1:]])) for dys in claim.dys)


@rule(r"is the true gradient at ((?P<z>\S+( transposed)?) instead of (?P<place>\S+)|(?P<rounded>\S+) rounded to float32)")
def other_point(claim, name, z, place, rounded):
    if rounded:
        place, value = rounded, claim.arrays[rounded].astype(np.float32).astype(np.float64)
    elif z.endswith(" transposed"):
        value = claim.arrays[place].swapaxes(-1, -2)
    else:
        value = claim.known(z)
    return all(close(claim.gradient(name, dys), claim.truth(name, dys, {place: value}), 1e-9) for dys in claim.dys)


@rule(r"is off by (a constant|a multiple of (?P<z>\S+|\(\S+ − its mean\))) in each row along axis (?P<axis>\d)")
def rows(claim, name, z, axis):
    axis = int(axis)
    base, less = re.fullmatch(r"\(?(\S+?)( − its mean\))?", z).groups() if z else ("", None)
    for dys, (a, t) in zip(claim.dys, claim.pairs(name), strict=True):
        vector = (np.ones(a.shape) if z is None else dys[0] if base == "dy" else claim.known(base)) + 0 * a
        vector = vector - vector.mean(axis, keepdims=True) if less else vector
        one, two = np.moveaxis(t - a, axis, -1), np.moveaxis(vector, axis, -1)
        if not close(one[..., :, None] * two[..., None, :], one[..., None, :] * two[..., :, None], 1e-6):
            return False
    return True


@rule(r"holds numbers of float32 only, as if that were used inside")
def low_precision(claim, name):
    return all(np.array_equal(a, a.astype(np.float32)) for a, _ in claim.pairs(name))


@rule(r"agrees with the truth to (?P<n>\d+) digits(, as if float32 were used inside)?")
def digits(claim, name, n):
    return all(largest(a - t) < 10.0 ** (2 - int(n)) * largest(t) for a, t in claim.pairs(name))


@rule("is wrong (only )?(?P<where>.+)")
def somewhere(claim, name, where):
    return whereabouts(claim.wrong(name)) == where


@rule("is the true gradient of (?P<other>[^ ]+)")
def that_of(claim, name, other):
    return all(close(claim.gradient(name, dys), claim.truth(other, dys)) for dys in claim.dys)


@rule("is the same whatever dy is")
def ignored(claim, name):
    return all(np.array_equal(claim.gradient(name, dys), claim.gradient(name, claim.dys[0])) for dys in claim.dys)


@rule("is not linear in dy(: (?P<how>.+))?")
def not_linear(claim, name, how):
    def of(factor, other=0.0):
        return claim.gradient(name, [factor * dy + other * more for dy, more in zip(*claim.dys[:2], strict=True)])

    once, twice, turned, both = of(1), of(2), of(-1), of(1, 1)
    linear = close(twice, 2 * once) and close(turned, -once) and close(both, once + of(0, 1))
    positive = claim.gradient(name, [np.maximum(dy, 0) for dy in claim.dys[0]])
    even = close(turned, once)
    return (
        not linear
        and {
            None: True,
            "−dy gives the same and 2·dy four times as much, as if dy were squared": even and close(twice, 4 * once),
            "−dy gives the same, as if |dy| stood for dy": even and close(twice, 2 * once),
            "what is negative in dy does not count": close(positive, once),
            "2·dy gives the same, as if dy were normalised": close(twice, once),
            "a part of it does not depend on dy": largest(of(0)) > 0,
        }[how]
    )


def calls(claim, name):
    """The gradients that one backward returns on three calls, with another dy each."""
    _, backward = claim.run(claim.copies())
    return [claim.gradient(name, dys, backward) for dys in claim.dys]


@rule("adds up: a backward that is called again returns the sum of all its calls so far")
def adds_up(claim, name):
    truths = np.cumsum([claim.truth(name, dys) for dys in claim.dys], axis=0)
    return all(map(close, calls(claim, name), truths))


@rule("is that of the first dy again when the backward is called with another")
def first_dy(claim, name):
    return all(close(each, claim.truth(name, claim.dys[0])) for each in calls(claim, name))


@rule("is right on the first call of a backward and wrong on the next(, since the first overwrites (?P<names>.+))?")
def first_call(claim, name, names):
    arrays = claim.copies()
    claim.run(arrays)[1](*claim.dys[0])
    overwritten = [other for other, array in arrays.items() if not np.array_equal(array, claim.arrays[other])]
    first, second, _ = calls(claim, name)
    truths = [claim.truth(name, dys) for dys in claim.dys[:2]]
    return (
        close(first, truths[0]) and not close(second, truths[1]) and overwritten == (names.split(" and ") if names else [])
    )


@rule("changes from one call to the next, with the same arrays and the same dy")
def changing(claim, name):
    _, backward = claim.run(claim.copies())
    one, two = (claim.gradient(name, claim.dys[0], backward) for _ in range(2))
    return not (close(one, two) and close(one, claim.gradient(name, claim.dys[0])))


@rule("is right if (?P<names>.+), which the forward overwrites, is restored before the backward")
def put_back(claim, name, names):
    arrays = claim.copies()
    _, backward = claim.run(arrays)
    overwritten = [other for other, array in arrays.items() if not np.array_equal(array, claim.arrays[other])]
    for other, array in arrays.items():
        array[...] = claim.arrays[other]
    right = close(claim.gradient(name, claim.dys[0], backward), claim.truth(name, claim.dys[0]))
    return right and overwritten == names.split(" and ")


def moved(claim):
    return {name: array + 0.1 * claim.rng.uniform(0.5, 1, array.shape) for name, array in claim.arrays.items()}


@rule("at a second point is that of the first point again")
def first_point(claim, name):
    there = claim.run(moved(claim))[1]
    return close(claim.gradient(name, claim.dys[0], there), claim.truth(name, claim.dys[0]))


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def softmax(x):
    exponentials = np.exp(x - x.real.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def square(x, change):
    """x², with a gradient that is changed."""
    return x * x, lambda dy: change(2 * x * dy)


def accumulating(x):
    total = np.zeros(x.shape)

    def backward(dy):
        total[...] += 2 * x * dy
        return total.copy()

    return x * x, backward


def remembering(x):
    kept = []

    def backward(dy):
        kept.append(2 * x * dy)
        return kept[0].copy()

    return x * x, backward


def random(x):
    rng = np.random.default_rng(0)
    return x * x, lambda dy: 2 * x * dy * rng.uniform(1, 2, x.shape)


def writing_backward(x):
    def backward(dy):
        dx = 2 * x * dy
        x[...] *= 3
        return dx

    return x * x, backward


def writing_forward(x):
    y = x * x
    if y.dtype == np.float64 and x.flags.writeable:
        x[...] = np.tanh(x)
    return y, lambda dy: 2 * x * dy


def writing_dy(x, w):
    def backward(dy):
        dy *= w
        return dy * 1, (dy * x).sum(0)

    return x * w, backward


def stale(which):
    kept = {}

    def op(x):
        kept.setdefault("first", x.copy())
        kept["last"] = np.array(x.real)
        return x * x, lambda dy: 2 * kept[which] * dy

    return op


X, W, SQUARE = normal(3, 5), normal(5, 7, seed=1), normal(5, 5, seed=2)


def of_square(what):
    """An operation whose gradient is that of x² changed by `what`."""
    return lambda x: square(x, what)


NO_SECOND_TERM = "lacks a term: output times the sum of each row along axis 1 has to be subtracted"
KINDS = [
    (of_square(lambda dx: 2 * dx), "is 2 times the truth"),
    (of_square(lambda dx: -dx), "is the truth with the wrong sign"),
    (of_square(lambda dx: -dx / 2), "is −1/2 of the truth"),
    (of_square(lambda dx: 3 * dx), "is 3 times the truth; 3 is the size of axis 0 of x and of axis 0 of output"),
    (
        of_square(lambda dx: dx / 5),
        "is 1/5 of the truth, as if a mean stood for a sum; 5 is the size of axis 1 of x and of axis 1 of output",
    ),
    (
        of_square(lambda dx: dx / np.sqrt(5)),
        "is 1/√5 of the truth; 5 is the size of axis 1 of x and of axis 1 of output",
    ),
    (
        of_square(lambda dx: dx * np.sqrt(15)),
        "is √15 times the truth; 15 is the size of the whole of x and of the whole of output",
    ),
    (of_square(lambda dx: dx * 1.0001), "is 1.0001 times the truth"),
    (of_square(lambda dx: dx * [1, 1, 1, 1, 2]), "is 2 times the truth where it is wrong, in column 4"),
    (of_square(lambda dx: dx * [[1], [1], [0]]), "is zero where it is wrong, in row 2"),
    (of_square(lambda dx: 0 * dx), "is zero everywhere; the truth is not"),
    (of_square(lambda dx: np.flip(dx, 1)), "is the truth in reverse order along axis 1"),
    (of_square(lambda dx: np.roll(dx, 1, 1)), "is the truth shifted by 1 along axis 1, cyclically"),
    (of_square(lambda dx: dx.T.reshape(3, 5)), "is the truth transposed and then reshaped to (3, 5)"),
    (of_square(lambda dx: dx.ravel()[::-1].reshape(3, 5)[::-1]), "is the truth in reverse order along axis 1"),
    (of_square(lambda dx: np.random.default_rng(0).permuted(dx)), "has the right numbers in the wrong places"),
    (
        of_square(lambda dx: dx.mean(1, keepdims=True) + 0 * dx),
        "is the mean of the truth over axis 1, repeated along it",
    ),
    (of_square(lambda dx: dx.sum(0) + 0 * dx), "is the sum of the truth over axis 0, repeated along it"),
    (of_square(lambda dx: dx - dx[:, :1]), "is off by a constant in each row along axis 1"),
    (of_square(lambda dx: dx + dx.sum(1, keepdims=True) * X), "is off by a multiple of x in each row along axis 1"),
    (of_square(lambda dx: dx * np.nan), "is not a number everywhere"),
    (
        of_square(lambda dx: dx.astype(np.float32).astype(np.float64)),
        "holds numbers of float32 only, as if that were used inside",
    ),
    (lambda x: (x * x, lambda dy: dy), "is dy itself"),
    (lambda x: (x * x, lambda dy: x), "is x itself"),
    (lambda x: (x * x, lambda dy: 2 * x * dy + dy / 4), "has an extra term 1/4·dy"),
    (lambda x: (x * x + x, lambda dy: 2 * x * dy), "lacks the term dy"),
    (lambda x: (x * x, lambda dy: 2 * x * dy + 0.1 * x), "is not linear in dy: a part of it does not depend on dy"),
    (lambda x: (x * x, lambda dy: 2 * x), "is the same whatever dy is"),
    (
        lambda x: (x * x, lambda dy: 2 * x * dy * dy),
        "is not linear in dy: −dy gives the same and 2·dy four times as much, as if dy were squared",
    ),
    (
        lambda x: (x * x, lambda dy: 2 * x * np.abs(dy)),
        "is not linear in dy: −dy gives the same, as if |dy| stood for dy",
    ),
    (lambda x: (x * x, lambda dy: 2 * x * np.maximum(dy, 0)), "is not linear in dy: what is negative in dy does not count"),
    (lambda x: (x * x, lambda dy: 2 * x * np.clip(dy, -0.1, 0.1)), "is not linear in dy"),
    (
        lambda x: (x * x, lambda dy: 2 * x * dy / np.sqrt((dy * dy).sum() + 1e-300)),
        "is not linear in dy: 2·dy gives the same, as if dy were normalised",
    ),
    (lambda x: (softmax(x), lambda dy: softmax(x) * dy), NO_SECOND_TERM),
    (lambda x: (x - x.mean(1, keepdims=True), lambda dy: 1 * dy), "is dy itself"),
    (
        lambda x: ((x - x.mean(1, keepdims=True)) * [1, 2, 3, 4, 5], lambda dy: dy * [1, 2, 3, 4, 5]),
        "lacks a term: the mean of each row along axis 1 has to be subtracted",
    ),
    (lambda x: (1 / (1 + np.exp(-x)), lambda dy: dy / (1 + np.exp(-x))), "lacks the factor 1 − output"),
    (lambda x: (np.sin(x), lambda dy: dy * np.cos(np.sin(x))), "is the true gradient at output instead of x"),
    (lambda x: (x**3, lambda dy: 3 * x * np.abs(x) * dy), "is the truth with the wrong sign where it is wrong"),
    (
        lambda x: (np.sin(x), lambda dy: dy * np.cos(x.astype("f4").astype(float))),
        "is the true gradient at x rounded to float32",
    ),
    (accumulating, "adds up: a backward that is called again returns the sum of all its calls so far"),
    (remembering, "is that of the first dy again when the backward is called with another"),
    (random, "changes from one call to the next, with the same arrays and the same dy"),
    (writing_backward, "is right on the first call of a backward and wrong on the next, since the first overwrites x"),
    (writing_forward, "is right if x, which the forward overwrites, is restored before the backward"),
    (stale("first"), "at a second point is that of the first point again"),
]


@pytest.mark.parametrize(("op", "what"), KINDS, ids=[what for _, what in KINDS])
def test_a_kind_of_fault_is_named(op, what):
    report = check(op, X.copy())
    assert [sentence.startswith(f"the gradient of x {what}") for sentence in report.diagnosis] == [True]
    assert Claim(op, {"x": X}).is_true(report.diagnosis[0])


NOT_SO = [
    "is 3 times the truth",
    "is 2 times the truth; 4 is the size of axis 0 of x",
    "is 2 times the truth where it is wrong, in row 0",
    "is the truth with the wrong sign",
    "is zero everywhere; the truth is not",
    "should be zero everywhere",
    "is dy itself",
    "is the truth in reverse order along axis 1",
    "is the truth shifted by 1 along axis 0, cyclically",
    "is the truth transposed and then reshaped to (3, 5)",
    "has the right numbers in the wrong places",
    "lacks a term: the mean of each row along axis 1 has to be subtracted",
    NO_SECOND_TERM,
    "lacks the term dy",
    "has an extra term 1/4·dy",
    "lacks the factor output",
    "has an extra factor 1 − (x)²",
    "is the sum of the truth over axis 0, repeated along it",
    "is the true gradient for the last slice of dy along axis 0 alone",
    "is the true gradient for dy without its last slice along axis 0",
    "is the true gradient for dy / x instead of dy",
    "is the true gradient at output instead of x",
    "is off by a constant in each row along axis 1",
    "holds numbers of float32 only, as if that were used inside",
    "agrees with the truth to 4 digits",
    "is wrong only in row 0",
    "is the same whatever dy is",
    "is not linear in dy",
    "adds up: a backward that is called again returns the sum of all its calls so far",
    "is that of the first dy again when the backward is called with another",
    "is right on the first call of a backward and wrong on the next",
    "changes from one call to the next, with the same arrays and the same dy",
    "is right if x, which the forward overwrites, is restored before the backward",
    "at a second point is that of the first point again",
]


@pytest.mark.parametrize("what", NOT_SO)
def test_a_claim_that_is_not_so_is_not_believed(what):
    assert not Claim(of_square(lambda dx: 2 * dx), {"x": X}).is_true(f"the gradient of x {what}")


def test_a_claim_without_a_rule_is_an_error():
    with pytest.raises(LookupError, match="no rule for: is odd"):
        Claim(of_square(lambda dx: dx), {"x": X}).is_true("the gradient of x is odd")


def linear(x, weight, bias):
    return x @ weight + bias, lambda dy: (dy @ weight.T, x.T @ dy, dy.sum(0))


def linear_but(change):
    def op(x, weight, bias):
        y, backward = linear(x, weight, bias)
        return y, lambda dy: change(dy, *backward(dy), x, weight)

    return op


IN_LINEAR = [
    (lambda dy, dx, dw, db, x, w: (dx, dw.T, db), "weight is the truth transposed"),
    (lambda dy, dx, dw, db, x, w: (dy @ w, dw, db), "x is the true gradient at weight transposed instead of weight"),
    (lambda dy, dx, dw, db, x, w: (dx, dw, dy[-1]), "bias is the true gradient for the last slice of dy along axis 0 alone"),
    (
        lambda dy, dx, dw, db, x, w: (dx, dw, dy[:-1].sum(0)),
        "bias is the true gradient for dy without its last slice along axis 0",
    ),
    (
        lambda dy, dx, dw, db, x, w: (dx, dw, db / 3),
        "bias is 1/3 of the truth, as if a mean stood for a sum; 3 is the size of axis 0 of x and of axis 0 of output",
    ),
    (lambda dy, dx, dw, db, x, w: (dx / 2, dw / 2, db / 2), "x, of weight and of bias is 1/2 of the truth"),
    (
        lambda dy, dx, dw, db, x, w: (dy.astype("f4").astype(float) @ w.T, dw, db),
        "x is the true gradient for dy rounded to float32",
    ),
    (
        lambda dy, dx, dw, db, x, w: (dx, (x.T.astype("f4") @ dy.astype("f4")).astype(float) + 1e-40 * dw, db),
        "weight holds numbers of float32 only, as if that were used inside",
    ),
    (
        lambda dy, dx, dw, db, x, w: ((dy.astype("f4") @ w.T.astype("f4")).astype(float) * (1 + 2**-30), dw, db),
        "x agrees with the truth to 6 digits, as if float32 were used inside",
    ),
]


@pytest.mark.parametrize(("change", "what"), IN_LINEAR, ids=[what for _, what in IN_LINEAR])
def test_one_gradient_of_several(change, what):
    op, arrays = linear_but(change), {"x": X, "weight": SQUARE, "bias": normal(5)}
    report = check(op, *(array.copy() for array in arrays.values()))
    assert report.diagnosis == [f"the gradient of {what}"]
    assert Claim(op, arrays).is_true(report.diagnosis[0])


def test_two_gradients_are_swapped():
    report = check(lambda x, z: (x * z * z, lambda dy: (2 * dy * x * z, dy * z * z)), X, normal(3, 5, seed=3))
    assert report.diagnosis == ["the gradients of x and z are swapped"]


def test_a_gradient_is_that_of_another_array():
    report = check(lambda x, z: (x * z * z, lambda dy: (dy * z * z, dy * z * z)), X, normal(3, 5, seed=3))
    assert report.diagnosis == ["the gradient of z is the true gradient of x"]


def test_dy_is_overwritten():
    report = check(writing_dy, X, normal(5))
    assert report.diagnosis == [
        "the gradient of w is the true gradient for what is left of dy, which the backward overwrites"
    ]
    assert Claim(writing_dy, {"x": X, "w": normal(5)}).is_true(report.diagnosis[0])


def test_along_directions_too():
    """Of so many entries single truths are not known."""
    x = normal(30, 40)
    for change, what in [
        (lambda dx: 2 * dx, "is 2 times the truth"),
        (lambda dx: 0 * dx, "is zero everywhere; the truth is not"),
        (lambda dx: np.flip(dx, 1), "is the truth in reverse order along axis 1"),
    ]:
        report = check(of_square(change), x)
        assert report.n_directions
        assert report.diagnosis == [f"the gradient of x {what}"]
    report = check(lambda x: (softmax(x), lambda dy: softmax(x) * dy), x)
    assert report.diagnosis == [f"the gradient of x {NO_SECOND_TERM}"]
    report = check(linear_but(lambda dy, dx, dw, db, x, w: (dx, dw, dy[0])), normal(30, 30), normal(30, 31), normal(31))
    assert report.diagnosis == ["the gradient of bias is the true gradient for the first slice of dy along axis 0 alone"]


def test_nothing_is_said_of_a_right_backward():
    assert check(of_square(lambda dx: dx), X).diagnosis == []


def test_nothing_is_said_where_nothing_is_plain():
    noise = np.random.default_rng(0).normal(size=(15, 15))
    assert check(of_square(lambda dx: (noise @ dx.ravel()).reshape(3, 5)), X).diagnosis == []


def test_at_most_four_sentences_and_the_same_again():
    def op(*arrays):
        changes = [2, 3, 0.5, -1, 0, 7]
        return sum(x * x for x in arrays), lambda dy: tuple(2 * x * dy * c for x, c in zip(arrays, changes, strict=True))

    arrays = [normal(3, 5, seed=seed) for seed in range(6)]
    report = check(op, *arrays)
    assert len(report.diagnosis) == 4
    assert len(str(report).splitlines()) <= 20
    assert check(op, *arrays) == report


def test_names_are_listed():
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and of b"
    assert listed(["a", "b", "c"]) == "a, of b and of c"
    assert listed(list("abcdef")) == "a, of b, of c and of 3 more"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, "2"),
        (-1, "−1"),
        (0.2, "1/5"),
        (-0.5, "−1/2"),
        (sqrt(7), "√7"),
        (1 / sqrt(48), "1/√48"),
    ],
)
def test_constants_are_recognised(value, text):
    exact, name, _ = next(constants(value * (1 + 1e-12)))
    assert (name, exact) == (text, pytest.approx(value, rel=1e-15))


def test_other_constants_are_not():
    assert not list(constants(1.2345678))


# Right operations of npformer, damaged in a way that has a name: what becomes of the gradient g of one array, and what is
# to be said of it. n is the size of its last axis.


def mean(g):
    return g.mean(-1, keepdims=True)


def uneven(g):
    """Another number for each row."""
    return np.arange(1, 1 + g[..., 0].size).reshape(*g.shape[:-1], 1) * g[..., :1] / 7


OF_ONE = {
    "doubled": (lambda g: 2 * g, "is 2 times the truth"),
    "turned": (lambda g: -g, "is the truth with the wrong sign"),
    "times n": (lambda g: g.shape[-1] * g, "is {n} times the truth; {n} is the size of "),
    "over n": (lambda g: g / g.shape[-1], "is 1/{n} of the truth, as if a mean stood for a sum; {n} is the size of "),
    "times √n": (lambda g: g * sqrt(g.shape[-1]), "is √{n} times the truth; {n} is the size of "),
    "over √n": (lambda g: g / sqrt(g.shape[-1]), "is 1/√{n} of the truth; {n} is the size of "),
    "zero": (lambda g: 0 * g, "is zero everywhere; the truth is not"),
    "reversed": (lambda g: np.flip(g, -1), r"is the truth in reverse order along axis \d"),
    "shifted": (lambda g: np.roll(g, 1, -1), r"is the truth shifted by 1 along axis \d"),
    "float32": (lambda g: g.astype("f4").astype(float), "(holds numbers of|is the true gradient for dy rounded to) float32"),
    "mean added": (lambda g: g + mean(g), r"is off by a constant in each row along axis \d"),
    "row constant added": (
        lambda g: g + uneven(g),
        r"(is off by a constant in each row|lacks a term: the mean of each row) along axis \d",
    ),
    "summed": (lambda g: g.sum(-1, keepdims=True) + 0 * g, r"is (the sum of the truth over axis \d|zero to rounding)"),
    "averaged": (lambda g: mean(g) + 0 * g, r"is (the mean of the truth over axis \d|zero to rounding)"),
    "transposed": (lambda g: g.swapaxes(-1, -2), r"is the truth (transposed|with its axes \d and \d swapped)$"),
}
OF_SEVERAL = [
    "swapped", "copied", "stale", "dy added", "mean for a sum", "last slice", "dy overwritten", "x overwritten", "squared",
    "rectified", "dy ignored",
]  # fmt: skip


def tuple_of(gradients):
    return gradients if isinstance(gradients, tuple) else (gradients,)


def damaged(case, damage, rng):
    """The damaged operation, the name of an array whose gradient is wrong, and a pattern; None where it cannot be done."""
    op, names = case.operation.function, list(case.arrays)
    shapes = {name: array.shape for name, array in case.arrays.items()}
    y = case.run()[0]
    y = y[0] if isinstance(y, tuple) else y
    fit = [name for name, shape in shapes.items() if shape and shape[-1] in (3, 5, 7) and prod(shape) >= 3]
    if damage == "transposed":
        fit = [name for name in fit if len(shapes[name]) > 1 and shapes[name][-1] == shapes[name][-2]]
    if damage in ("swapped", "copied"):
        fit = [name for name in fit if any(shapes[name] == shapes[other] for other in names if other != name)]
    if damage == "dy overwritten" and y.ndim == 0:
        return None
    if damage == "dy added":
        fit = [name for name in fit if shapes[name] == y.shape]
    if damage in ("mean for a sum", "last slice"):
        fit = [name for name in fit if name in ("gamma", "beta", "bias") and len(shapes[name]) == 1 < len(y) and y.ndim > 1]
    if not fit:
        return None
    name = str(rng.choice(fit))
    place = names.index(name)
    other = next((each for each in names if each != name and shapes[each] == shapes[name]), name)
    kept = []

    def wrong(**arguments):
        y, backward = op(**arguments)
        kept.append(backward)

        def changed(*dys):
            first, *rest = dys
            if damage in ("squared", "rectified", "dy ignored"):
                change = {"squared": np.square, "rectified": lambda dy: np.maximum(dy, 0), "dy ignored": np.ones_like}[
                    damage
                ]
                return backward(change(first), *rest)
            if damage == "stale":
                return kept[0](*dys)
            if damage == "dy overwritten":
                first[...] = first * np.linspace(0.5, 2, first.size).reshape(first.shape)
            gradients = list(tuple_of(backward(*dys)))
            if damage == "x overwritten":
                gradients = [g.copy() for g in gradients]
                arguments[name][...] *= 0.5
            elif damage in OF_ONE:
                gradients[place] = OF_ONE[damage][0](gradients[place])
            elif damage == "swapped":
                gradients[place], gradients[names.index(other)] = gradients[names.index(other)], gradients[place]
            elif damage == "copied":
                gradients[place] = gradients[names.index(other)].copy()
            elif damage == "dy added":
                gradients[place] = gradients[place] + 0.3 * first
            elif damage == "mean for a sum":
                gradients[place] = gradients[place] / first.shape[0]
            elif damage == "last slice":
                last = np.zeros_like(first)
                last[-1] = first[-1]
                gradients[place] = tuple_of(backward(last, *rest))[place]
            return tuple(gradients)

        return y, changed

    if damage in OF_ONE:
        return wrong, name, OF_ONE[damage][1].format(n=shapes[name][-1])
    pattern = {
        "swapped": "are swapped",
        "copied": f"is (the true gradient of {re.escape(other)}|dy itself)",
        "stale": "at a second point is that of the first point again",
        "dy added": "has an extra term 0.3·dy",
        "mean for a sum": f"is 1/{y.shape[:1][0] if y.shape else 1} of the truth, as if a mean stood for a sum",
        "last slice": "is the true gradient for the last slice of dy",
        "dy overwritten": "is the true gradient for what is left of dy, which the backward overwrites",
        "x overwritten": f"is right on the first call .*, since the first overwrites {re.escape(name)}",
        "squared": "is not linear in dy: .* as if dy were squared",
        "rectified": "is not linear in dy: what is negative in dy does not count",
        "dy ignored": "is the same whatever dy is",
    }[damage]
    return wrong, name, pattern


NUMBERS_ARE_WRONG = ("entries are wrong", "is wrong, for one at", "at a second point")
OF_ALL = ("swapped", "stale", "dy overwritten", "x overwritten", "squared", "rectified", "dy ignored")  # of any array


def damaged_cases(seeds):
    for seed in seeds:
        for operation_name, operation in OPERATIONS.items():
            for damage in (*OF_ONE, *OF_SEVERAL) if operation.differentiable else ():
                rng = np.random.default_rng([seed, sorted((*OF_ONE, *OF_SEVERAL)).index(damage)])
                case = operation.draw(RandomChooser(rng), rng)
                if sum(array.size for array in case.arrays.values()) > 200 or not all(
                    map(is_ordinary, case.arrays.values())
                ):
                    continue
                found = damaged(case, damage, rng)
                if found:
                    yield operation_name, case, damage, *found


def is_ordinary(array):
    return array.size > 0 and np.isfinite(array).all()


def measured(seeds, every=1):
    """How many damages were named, which were not, and what was said that is not so."""
    named, missed, untrue = Counter(), [], []
    for operation_name, case, damage, op, name, pattern in islice(damaged_cases(seeds), None, None, every):
        report = check(op, stopped=case.operation.stopped(case), **case.arrays, **case.options)
        wrong = [finding.text for finding in report.findings if finding.verdict == "fail"]
        if not any(each in text for each in NUMBERS_ARE_WRONG for text in wrong):
            continue
        subject = r"\S+" if damage in OF_ALL else re.escape(name)
        said = [sentence for sentence in report.diagnosis if re.search(rf" {subject} (.* )?({pattern})", sentence)]
        if said:
            named[damage] += 1
        else:
            missed.append((operation_name, damage, name, report.diagnosis))
        claim = Claim(with_options(op, case), case.arrays, case.operation.stopped(case))
        untrue += [(operation_name, damage, sentence) for sentence in report.diagnosis if not claim.is_true(sentence)]
    return named, missed, untrue


def with_options(op, case):
    return lambda **arrays: op(**arrays, **copy.deepcopy(dict(case.options)))


def test_damage_is_named():
    named, missed, untrue = measured(range(1), every=4)
    assert not untrue
    assert named.total() >= 0.9 * (named.total() + len(missed)), missed
    assert named.total() > 30


@pytest.mark.long
def test_much_damage_is_named():
    named, missed, untrue = measured(range(1, 13))
    assert not untrue
    assert named.total() >= 0.95 * (named.total() + len(missed)), missed
    assert set(named) == {*OF_ONE, *OF_SEVERAL}


def untrue_sentences(wrong, n_seeds):
    """What is said of one of npformer's faults that is not so, and how much is said."""
    operation = replace(CATALOGUE[wrong.operation], function=wrong.load())
    untrue, n_said = [], 0
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        case = operation.draw(RandomChooser(rng), rng)
        if sum(array.size for array in case.arrays.values()) > 800:
            continue
        stopped = operation.stopped(case)
        try:
            report = check(case.operation.function, stopped=stopped, **case.arrays, **case.options)
        except (ValueError, TypeError, IndexError, NameError, RuntimeWarning):  # what the fault itself does not survive
            continue
        claim = Claim(with_options(case.operation.function, case), case.arrays, stopped)
        untrue += [(str(case), sentence) for sentence in report.diagnosis if not claim.is_true(sentence)]
        n_said += len(report.diagnosis)
    return untrue, n_said


DIFFERENTIABLE = [wrong for wrong in WRONG if CATALOGUE[wrong.operation].differentiable]


def test_nothing_untrue_is_said_of_faults_of_operations():
    for wrong in DIFFERENTIABLE[::18]:
        assert untrue_sentences(wrong, 2)[0] == []


@pytest.mark.long
@pytest.mark.parametrize("wrong", DIFFERENTIABLE, ids=str)
def test_nothing_untrue_is_said_of_a_fault(wrong):
    assert untrue_sentences(wrong, 6)[0] == []
