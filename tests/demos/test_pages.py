"""What the demos' pages show alike."""

import numpy as np
import pytest

from demos.pages import training_charts
from npformer.inspection import write_page
from npformer.training import Step

FIRST = [Step(1, 3.5, 0.7, 1e-3), Step(2, 2.25, 0.9, 2e-3), Step(3, 2.5, 0.4, 5e-4)]
SECOND = [Step(7, 1.5, 0.3, 3e-4), Step(8, 1.25, 0.2, 1e-4)]


def test_there_is_a_chart_each_of_loss_gradient_norm_and_learning_rate():
    charts = training_charts({"training": FIRST})
    assert [(chart.title, chart.y) for chart in charts] == [
        ("Loss", "loss"),
        ("Gradient norm", "gradient norm"),
        ("Learning rate", "learning rate"),
    ]
    for chart, values in zip(charts, ([3.5, 2.25, 2.5], [0.7, 0.9, 0.4], [1e-3, 2e-3, 5e-4]), strict=True):
        assert list(chart.lines) == ["training"]
        np.testing.assert_array_equal(chart.lines["training"], [[1, 2, 3], values])


def test_runs_are_drawn_over_one_another_each_at_its_own_steps():
    loss = training_charts({"before": FIRST, "after": SECOND})[0]
    assert list(loss.lines) == ["before", "after"]
    np.testing.assert_array_equal(loss.lines["after"], [[7, 8], [1.5, 1.25]])


@pytest.mark.parametrize("runs", [{}, {"training": []}])
def test_where_no_step_was_taken_there_is_no_chart(runs):
    assert training_charts(runs) == []


def test_a_run_without_steps_is_left_out_beside_another():
    assert list(training_charts({"before": [], "after": SECOND})[0].lines) == ["after"]


def test_they_are_parts_of_a_page(tmp_path):
    path = write_page(tmp_path / "x.html", "Two runs", training_charts({"first": FIRST, "second": SECOND}))
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert path == str(tmp_path / "x.html")
    assert all(word in page for word in ("Loss", "Gradient norm", "Learning rate", "first", "second"))


def test_one_step_alone_is_drawn(tmp_path):
    write_page(tmp_path / "x.html", "One step", training_charts({"training": FIRST[:1]}))
