"""Two claims about attention that one can try: why scores are divided by √d, and what attention does not know."""

from collections.abc import Sequence

import numpy as np

from demos.by_hand.tables import beside, numbers, prose, table
from demos.by_hand.terminal import glossed
from npformer.functional import attention, sinusoidal_positions, softmax
from npformer.operation import Array

WIDTHS = (4, 16, 64, 256, 1024)
N_KEYS, N_DRAWS = 16, 200
VECTORS = np.array([[1, 0, 0.5, -1], [0, 2, -1, 0.5], [-1, 1, 0, 1]])  # of the first three words


def fading(d: int, scale: float, seed: int = 0) -> tuple[float, float, float]:
    """The spread of the scores of random queries and keys of d numbers each, the largest weight, and the mean size of
    ∂P/∂s, averaged over N_DRAWS queries, each with N_KEYS keys of its own."""
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((N_DRAWS, 1, d)), rng.standard_normal((N_DRAWS, N_KEYS, d))
    s = scale * (query @ key.swapaxes(-1, -2))[:, 0]  # (N,1,d)(N,d,S) → (N,1,S) → (N,S)
    P, backward = softmax(s)
    one_hot = np.eye(N_KEYS)
    slopes = [backward(np.broadcast_to(row, s.shape)) for row in one_hot]  # ∂P_i/∂s for every weight i
    return float(s.std()), float(P.max(-1).mean()), float(np.abs(slopes).mean())


def scaling() -> str:
    names = ["spread of s", "largest P", "mean |∂P/∂s|"]
    apart, scaled = (
        [[f"{number:.4f}" for number in fading(d, scale)] for d, scale in zip(WIDTHS, scales, strict=True)]
        for scales in ([1.0] * len(WIDTHS), [d**-0.5 for d in WIDTHS])
    )
    return "\n\n".join(
        [
            "EXPERIMENT 1: WHY THE SCORES ARE DIVIDED BY √d\n\n"
            + prose(
                f"Queries and keys of d random numbers each, of mean 0 and variance 1; {N_KEYS} keys to a query, averages "
                f"over {N_DRAWS} queries. Spread is the standard deviation; ∂P/∂s says how far the weights follow when "
                "scores move."
            ),
            beside(
                table("s = q kᵀ", apart, names, [f"d = {d}" for d in WIDTHS]),
                table("s = q kᵀ / √d", scaled, names),
            ),
            prose(
                "Without the division the spread grows like √d, one weight takes nearly all, and ∂P/∂s fades, and with it "
                "every gradient that has to go back through softmax; divided by √d, the width makes no difference."
            ),
        ]
    )


def outputs(order: Sequence[int], with_positions: bool) -> Array:
    """What self-attention without weights (query, key and value are all x) makes of VECTORS in this order: a row for each
    word, in the order of VECTORS again."""
    x = VECTORS[list(order)]
    if with_positions:
        x = x + sinusoidal_positions(*x.shape)
    y, _ = attention(*[x[None, None]] * 3)  # (T,D) → (1,1,T,D)
    return y[0, 0, np.argsort(order)]


def word_order(words: Sequence[str]) -> str:
    words = words[: len(VECTORS)]
    there, back = range(len(words)), range(len(words))[::-1]
    between = " " if "".join(words).isascii() else ""
    titles = [between.join(words[i] for i in order) for order in (there, back)]
    shown = []
    for with_positions, what in (
        (False, "Without positions"),
        (True, "With npformer.functional.sinusoidal_positions added to x"),
    ):
        rows = [outputs(order, with_positions) for order in (there, back)]
        shown.append(
            f"{what}, the same word's y differs by at most {np.abs(rows[0] - rows[1]).max():.2g}:\n"
            + beside(
                table(f"y in {titles[0]}", numbers(rows[0]), rows=words),
                table(f"y in {titles[1]}", numbers(rows[1]), rows=words),
            )
        )
    return "\n\n".join(
        [
            "EXPERIMENT 2: WHAT ATTENTION DOES NOT KNOW\n\n"
            + prose(
                f"{glossed(titles[0], 'I like Beijing')} and {glossed(titles[1], 'Beijing likes me')}, through attention "
                "without a mask. Each word's vector x is its query, its key and its value."
            ),
            *shown,
            prose(
                "A sum over keys has no order: without positions each word gets the same y in both sentences, to the last "
                "digits, and who likes whom is lost; with a position added to each x, the two can be told apart."
            ),
        ]
    )
