"""What demos show on their pages alike: how a training went."""

from collections.abc import Mapping, Sequence

from npformer.inspection import LineChart
from npformer.training import Step

PICTURES = {"loss": "loss", "gradient norm": "gradient_norm", "learning rate": "learning_rate"}


def training_charts(runs: Mapping[str, Sequence[Step]], held_out: float | None = None) -> list[LineChart]:
    """Loss, gradient norm and learning rate over the steps, the runs over one another; none where no step was taken. The
    loss on the text held out is a point at the end."""
    taken = {name: steps for name, steps in runs.items() if steps}
    if not taken:
        return []
    charts = []
    for title, field in PICTURES.items():
        lines = {
            name: ([step.number for step in steps], [getattr(step, field) for step in steps])
            for name, steps in taken.items()
        }
        if title == "loss" and held_out is not None:
            lines["held out"] = ([max(x[-1] for x, _ in lines.values())], [held_out])
        charts.append(LineChart(title.capitalize(), lines, y=title))
    return charts
