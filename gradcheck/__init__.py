"""Proves a hand-written backward pass right, or says where it is wrong.

gradcheck knows nothing of the code that it checks: a forward, a backward, NumPy arrays.
"""

from gradcheck.checker import check, check_layer, check_pair
from gradcheck.report import Finding, GradientError, Report, Worst

__all__ = ["Finding", "GradientError", "Report", "Worst", "check", "check_layer", "check_pair"]
