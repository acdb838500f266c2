"""An axis with round numbers on it, and numbers as the charts write them."""

import math
from typing import Any, NamedTuple

import numpy as np

from npformer.operation import Array

SMALLEST = 1e-300  # a span below it counts as none
ALIKE = 1e-9  # and so does one that is so small a share of the numbers


class Axis(NamedTuple):
    """From `low` to `high`; a tick is a number and how it is written."""

    low: float
    high: float
    log: bool
    ticks: list[tuple[float, str]]

    def share(self, values: Any) -> Array:
        """How far along the axis, from 0 to 1."""
        low, high, place = (np.log10(v) if self.log else np.asarray(v) for v in (self.low, self.high, values))
        return np.asarray((place - low) / (high - low))


def axis(values: Array, *, room: float, log: bool = False) -> Axis:
    """The axis that shows `values`, with so large a share of their span to spare at both ends."""
    low, high = float(values.min()), float(values.max())
    if log:
        spare = max(10.0 ** (room * (math.log10(high) - math.log10(low))), 1.2)
        low, high = low / spare, high * spare
        return Axis(low, high, True, log_ticks(low, high))
    largest = max(abs(low), abs(high))
    spare = room * (high - low) if high - low > max(ALIKE * largest, SMALLEST) else 0.1 * largest or 1.0
    low, high = low - spare, high + spare
    return Axis(low, high, False, written(nice(low, high)))


def nice(low: float, high: float) -> list[float]:
    """Three to eight numbers from `low` to `high`, 1, 2 or 5 times a power of ten apart."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / 5))
    step = next(power * n for n in (1, 2, 5, 10) if span / (power * n) <= 7.5)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Powers of ten, as many as there is room for; 2 and 5 between them where they are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    apart = max(1, (last - first) // 6)
    between = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [10.0**p * n for p in range(first, last + 1) if p % apart == 0 for n in between]
    within = [tick for tick in ticks if low <= tick <= high]
    return [one for tick in within for one in written([tick])] if len(within) > 1 else written(nice(low, high))


def written(ticks: list[float]) -> list[tuple[float, str]]:
    """Each with as many digits as it takes for all to be right."""
    largest = max(map(abs, ticks), default=0.0)
    plain = 1e-3 <= largest < 1e6
    for digits in range(17):
        texts = [f"{tick:.{digits}f}" if plain else tidy(f"{tick:.{digits}e}") for tick in ticks]
        if all(abs(float(text) - tick) <= ALIKE * largest for text, tick in zip(texts, ticks, strict=True)):
            break
    return [(tick, text.replace("-", "−") if float(text) else "0") for tick, text in zip(ticks, texts, strict=True)]


def number(value: float) -> str:
    """Four decimals, or four digits of what is very small or large; whole numbers as they are."""
    value = float(value)
    if value.is_integer() and abs(value) < 1e9:
        text = str(int(value))
    elif 0.1 <= abs(value) < 1e6:
        text = f"{value:.4f}"
    else:
        text = tidy(f"{value:.3e}")
    return text.replace("-", "−")


def tidy(text: str) -> str:
    """1.5e-05 as 1.5e-5."""
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"
