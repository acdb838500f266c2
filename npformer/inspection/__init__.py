"""What attention did: recorded from any model or given as arrays, shown in a terminal, a page or a notebook, diagnosed."""

from npformer.inspection.ablation import Ablation
from npformer.inspection.arrays import inspect_arrays
from npformer.inspection.attention_map import AttentionMap
from npformer.inspection.comparison import Comparison, compare
from npformer.inspection.diagnosis import Finding, Thresholds
from npformer.inspection.inspection import Inspection
from npformer.inspection.page import Opened, write_page
from npformer.inspection.page.line_chart import LineChart
from npformer.inspection.recording import Recording, record
from npformer.inspection.who_attends import WhoAttends

__all__ = [
    "record",
    "Recording",
    "inspect_arrays",
    "Inspection",
    "AttentionMap",
    "compare",
    "Comparison",
    "Finding",
    "Thresholds",
    "WhoAttends",
    "Ablation",
    "LineChart",
    "Opened",
    "write_page",
]
