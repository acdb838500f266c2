"""What the configuration of every model refuses, as (name, value, error)."""

import numpy as np


def refused(required, optional):
    """`required` and `optional` are the fields that count something; the optional ones may be None."""
    return [
        *((name, value, ValueError) for name in (*required, *optional) for value in (0, -1)),
        *((name, value, TypeError) for name in (*required, *optional) for value in (1.5, True)),
        *((name, None, TypeError) for name in required),
        ("n_heads", 3, ValueError),
        ("n_kv_heads", 3, ValueError),
        ("activation", "tanh", ValueError),
        ("norm", "batch_norm", ValueError),
        ("norm_placement", "both", ValueError),
        ("positions", None, ValueError),
        *(("dropout", value, ValueError) for value in (1.0, -0.1, np.nan)),
        ("dropout", "0", TypeError),
        *(("bias", value, TypeError) for value in (None, 1)),
    ]
