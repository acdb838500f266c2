"""Embedding: every id is replaced by its row of a table.

    y_t = table[id_t]      dtable[v] = Σ dy_t over the places t where id_t = v

Backward. A row that was looked up several times carries each of those gradients, so they are added, not written: the
ids of a text repeat, and an assignment would keep only the last. In code the gradients are sorted by their ids, so that
those of one row lie side by side, and each such run is summed. The ids are integers and have no gradient.

The same as multiplying one-hot rows by the table (`linear`), without the multiplications by zero.

Source: Bengio, Ducharme, Vincent and Jauvin 2003, section 2.
"""

import numpy as np

from npformer.arguments import check_count, check_ids
from npformer.operation import Array, Backward, operation


@operation(table="V D")
def embedding(ids: Array, table: Array, padding_id: int | None = None) -> tuple[Array, Backward]:
    """Look up the rows of `table`.

    ids (...) integers in 0 … V − 1, table (V, D) → y (..., D), and backward(dy) → dtable (V, D).

    The row `padding_id` is looked up like any other, but its gradient is exactly 0. ValueError for an id outside the
    table, with its place: NumPy alone would wrap a negative one.
    """
    check_ids("embedding", "ids", ids, limit=table.shape[0])
    if padding_id is not None:
        check_count("embedding", "padding_id", padding_id, low=0, high=table.shape[0] - 1)
    y = table[ids]  # (...) → (..., D)

    def backward(dy: Array) -> Array:
        dtable = np.zeros(table.shape, table.dtype)
        rows = dy.reshape(ids.size, table.shape[1])  # (..., D) → (N,D)
        order = np.argsort(ids, axis=None, kind="stable")  # (N,): equal ids side by side
        found, firsts = np.unique(ids.reshape(-1)[order], return_index=True)  # the distinct ids, and where each begins
        dtable[found] = np.add.reduceat(rows[order], firsts, axis=0)
        if padding_id is not None:
            dtable[padding_id] = 0
        return dtable

    return y, backward
