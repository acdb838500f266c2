"""What demos show on their pages alike: how a training went."""

from collections.abc import Mapping, Sequence

from npformer.inspection import LineChart
from npformer.training import Step

PICTURES = {"loss": "loss", "gradient norm": "gradient_norm", "learning rate": "learning_rate"}


def training_charts(runs: Mapping[str, Sequence[Step]]) -> list[LineChart]:
    """Loss, gradient norm and learning rate over the steps, the runs over one another; none where no step was taken."""
    taken = {name: steps for name, steps in runs.items() if steps}
    if not taken:
        return []
    return [
        LineChart(
            title.capitalize(),
            {
                name: ([step.number for step in steps], [getattr(step, field) for step in steps])
                for name, steps in taken.items()
            },
            y=title,
        )
        for title, field in PICTURES.items()
    ]
