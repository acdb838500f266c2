"""Every operation and layer by name, and how to draw cases of it.

Whoever tries them all walks these tables: the property tests, `python -m npformer check`, the oracle.
"""

from npformer.catalogue.entry import VALUES, Axes, Case, Chooser, Operation, RandomChooser
from npformer.catalogue.layers import LAYERS
from npformer.catalogue.operations import OPERATIONS

__all__ = ["OPERATIONS", "LAYERS", "VALUES", "Axes", "Case", "Chooser", "Operation", "RandomChooser"]
