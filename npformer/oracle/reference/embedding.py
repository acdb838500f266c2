"""Rows of a table, by number."""

from npformer.oracle.reference.nested import Nested, each_entry


def embedding(ids: Nested, table: Nested, padding_id: int | None = None) -> Nested:
    """y = table[id]; ids (...), table (V, D) → y (..., D).

    `padding_id` stops the gradient of its row and changes no output: it is taken and left unused.
    """

    def row(i: int) -> Nested:
        return list(table[i])

    return each_entry(row, ids)
