"""What a check costs as the number of entries grows: forward evaluations, which are the same everywhere, and seconds.

    python tests/benchmarks/check_growth.py

The first table is of GPTs, every parameter of them, by complex step; the second of one array, by complex step and by
differences. The last column but one divides the evaluations by the root of the number of entries, which must not grow.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck import Report, check, check_layer
from npformer import GPT, GPTConfig

MODELS = {
    "5,000": GPTConfig(vocab_size=31, max_len=7, n_layers=2, n_heads=2, d_model=14),
    "50,000": GPTConfig(vocab_size=61, max_len=16, n_layers=4, n_heads=4, d_model=32),
    "200,000": GPTConfig(vocab_size=97, max_len=16, n_layers=4, n_heads=4, d_model=64),
    "800,000": GPTConfig(vocab_size=103, max_len=16, n_layers=4, n_heads=4, d_model=128),
}
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)


def report_of_model(config: GPTConfig) -> Report:
    """A freshly made GPT on two rows of random ids."""
    ids = np.random.default_rng(0).integers(config.vocab_size, size=(2, config.max_len))
    return check_layer(GPT(config, dtype=np.float64), ids)


def report_of_array(n: int, truth: str) -> Report:
    def op(x: Any) -> tuple[Any, Callable[[Any], Any]]:
        return x * x, lambda dy: 2 * x * dy

    return check(op, np.random.default_rng(0).normal(size=n), truth=truth)


def timed(report_of: Callable[..., Report], *arguments: Any) -> tuple[Report, float]:
    start = time.perf_counter()
    report = report_of(*arguments)
    return report, time.perf_counter() - start


def row(*cells: str) -> None:
    print(f"{cells[0]:<28}" + "".join(f"{cell:>14}" for cell in cells[1:]), flush=True)


def measured(name: str, report: Report, seconds: float) -> None:
    root: float = report.n_entries**0.5
    row(
        name,
        f"{report.n_entries:,}",
        report.verdict,
        f"{report.n_evaluations}",
        f"{report.n_evaluations / root:.1f}",
        f"{seconds:.1f}",
    )


def main() -> None:
    headings = ("entries", "verdict", "evaluations", "/ √entries", "seconds")
    row("GPT, by complex step", *headings)
    for name, config in MODELS.items():
        measured(f"about {name} parameters", *timed(report_of_model, config))
    print()
    row("one array", *headings)
    for truth in ("complex", "difference"):
        for n in SIZES:
            measured(f'truth="{truth}"', *timed(report_of_array, n, truth))


if __name__ == "__main__":
    main()
