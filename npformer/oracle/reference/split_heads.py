"""One wide row becomes a narrow one for every head."""

from npformer.oracle.reference.nested import Nested


def split_heads(x: Nested, n_heads: int) -> Nested:
    """x (B,T,H·K) → y (B,H,T,K): head h takes columns h·K … (h + 1)·K − 1.        Vaswani et al. 2017, section 3.2.2"""

    def part(row: Nested, h: int) -> Nested:
        K = len(row) // n_heads
        return row[h * K : (h + 1) * K]

    return [[[part(row, h) for row in rows] for h in range(n_heads)] for rows in x]
