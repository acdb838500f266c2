"""The heads' rows are joined again."""

from npformer.oracle.reference.nested import Nested


def merge_heads(x: Nested) -> Nested:
    """x (B,H,T,K) → y (B,T,H·K): head after head, undoing split_heads        Vaswani et al. 2017, section 3.2.2"""
    return [[[entry for row in rows for entry in row] for rows in zip(*heads, strict=True)] for heads in x]
