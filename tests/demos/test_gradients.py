"""The check before training: what is wrong is found, also where it is wrong for long windows only."""

import numpy as np
import pytest

from demos.gradients import FEW_TOKENS, gradients_are_right
from npformer import GPT, GPTConfig

IDS = np.random.default_rng(0).integers(7, size=200)


@pytest.fixture
def model():
    return GPT(GPTConfig(vocab_size=7, max_len=16, n_layers=1, n_heads=2, d_model=16, bias=False))


def spoil(monkeypatch, only_beyond):
    """Attention's gradient is a thousandth too large, in windows of more tokens than that."""
    from npformer.layers import MultiHeadAttention

    right = MultiHeadAttention.forward

    def forward(self, x, *others, **options):
        y, backward = right(self, x, *others, **options)
        factor = 1.001 if x.shape[1] > only_beyond else 1
        return y, lambda dy: factor * backward(dy)

    monkeypatch.setattr(MultiHeadAttention, "forward", forward)


def test_right_gradients_are_one_line_and_leave_the_model_alone(model, capsys):
    before = {name: parameter.value.copy() for name, parameter in model.parameters().items()}
    assert gradients_are_right(model, IDS)
    output = capsys.readouterr().out
    assert output.startswith("gradients   pass: 11 parameter arrays with 3,488 entries, ")
    assert output.count("\n") == 1
    assert all(np.array_equal(parameter.value, before[name]) for name, parameter in model.parameters().items())


@pytest.mark.parametrize("only_beyond", [0, FEW_TOKENS])
def test_wrong_gradients_are_found(model, monkeypatch, capsys, only_beyond):
    spoil(monkeypatch, only_beyond)
    assert not gradients_are_right(model, IDS)
    output = capsys.readouterr().out
    assert output.startswith("gradients   fail: ")
    assert "\nFAIL " in output


def test_a_text_of_one_window_is_enough(model):
    assert gradients_are_right(model, IDS[:17])
