"""Entries dropped by chance, the others raised to make up for them."""

from npformer.oracle.reference.elementary import Number
from npformer.oracle.reference.nested import Nested, kind_of


def dropout(x: Nested, p: Number, kept: Nested) -> Nested:
    """y = x·kept / (1 − p), where True counts 1 and False 0; kept = None is no dropout.

    Srivastava et al. 2014, section 4, with the scale moved from evaluation to training (section 10).
    """
    if kept is None:
        return x
    if isinstance(x, list):
        return [dropout(part, p, part_kept) for part, part_kept in zip(x, kept, strict=True)]
    number = kind_of(x)
    return x * int(kept) / (1 - number(p))
