"""Proves a hand-written backward pass right, or says where it is wrong.

gradcheck knows nothing of the code that it checks: a forward, a backward, NumPy arrays.
"""

import importlib
from typing import Any

from gradcheck.agreement import compare
from gradcheck.checker import check, check_layer, check_pair
from gradcheck.derivatives import Derivative, derivative
from gradcheck.report import Finding, GradientError, Report, Worst

__all__ = [
    "check",
    "check_pair",
    "check_layer",
    "compare",
    "derivative",
    "Report",
    "Finding",
    "Worst",
    "Derivative",
    "GradientError",
]


def __getattr__(name: str) -> Any:
    """gradcheck.mutation and gradcheck.strategies, which few need and the second of which needs Hypothesis."""
    if name in ("mutation", "strategies"):
        return importlib.import_module(f"gradcheck.{name}")
    raise AttributeError(f"module 'gradcheck' has no attribute {name!r}")
