"""The one Hypothesis profile, in force for every test."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # one process a core, so each has one thread for its matrix products
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings

IN_CI = bool(os.environ.get("CI"))

settings.register_profile(
    "npformer",
    deadline=None,  # nothing asserts on a time
    max_examples=40,
    print_blob=True,
    derandomize=IN_CI,  # the same examples in every run, and
    database=None if IN_CI else settings().database,  # none remembered from the last
)
settings.load_profile("npformer")
