"""The one-file model computes what the package computes: its loss, every gradient, and a step."""

import ast
from pathlib import Path

import numpy as np
import pytest

from demos import minimal
from npformer import GPT, GPTConfig
from npformer.training import AdamW, clip_by_norm, warmup_cosine

FILE = Path(minimal.__file__)
V = 11


def name_in_package(name):
    whole = {"table": "embedding.table", "positions": "positions.table", "norm": "final_norm.gamma"}
    if name in whole:
        return whole[name]
    i, _, part = name.partition(".")
    norms = {"norm1": "attention.norm.gamma", "norm2": "feed_forward.norm.gamma"}
    of = "feed_forward" if part in ("widen", "narrow") else "attention"
    return f"layers.{i}.{norms.get(part, f'{of}.{part}.weight')}"


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    for name, value in {"N_LAYERS": 2, "H": 3, "D": 12, "T": 7, "BATCH": 2, "STEPS": 12, "WARM_UP": 2}.items():
        monkeypatch.setattr(minimal, name, value)


@pytest.fixture
def models():
    rng = np.random.default_rng(0)
    p = minimal.new_parameters(V, rng, np.float64)
    config = GPTConfig(vocab_size=V, max_len=7, n_layers=2, n_heads=3, d_model=12, bias=False)
    gpt = GPT(config, dtype=np.float64)
    assert {name_in_package(name) for name in p} == set(gpt.parameters())
    for name, value in p.items():
        value[...] = rng.standard_normal(value.shape) / np.sqrt(len(value))
        gpt.parameters()[name_in_package(name)].value[...] = value
    return p, gpt


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * abs(expected).max() + 1e-15)


@pytest.mark.parametrize("length", [7, 5, 1])
def test_the_loss_and_every_gradient_are_the_packages(models, length):
    p, gpt = models
    ids, targets = np.random.default_rng(1).integers(V, size=(2, 3, length))
    logits, model_backward = minimal.model(ids, p)
    loss, loss_backward = minimal.cross_entropy(logits, targets)
    gradients = model_backward(loss_backward())
    (total, count), backward = gpt.loss(ids, targets)
    backward(1 / count)
    close(logits, gpt(ids))
    close(loss, total / count)
    assert gradients.keys() == p.keys()
    for name, gradient in gradients.items():
        close(gradient, gpt.parameters()[name_in_package(name)].grad)


@pytest.mark.parametrize("size", [1e-3, 10.0])
def test_a_step_is_the_packages(models, size):
    p, _ = models
    rng = np.random.default_rng(2)
    names = sorted(p, key=lambda name: p[name].ndim < 2)
    n_matrix = sum(p[name].size for name in names if p[name].ndim == 2)
    values = np.concatenate([p[name].ravel() for name in names])
    optimiser = AdamW(values, n_matrix)
    moments = {}
    for step in range(5):
        gradients = {name: size * rng.standard_normal(value.shape) for name, value in p.items()}
        flat = np.concatenate([gradients[name].ravel() for name in names])
        clip_by_norm(flat, 1.0)
        optimiser.step(values, flat, warmup_cosine(step, peak=1e-3, end=1e-4, n_warmup=2, n_steps=12), step + 1)
        minimal.update(p, gradients, moments, step)
        close(np.concatenate([p[name].ravel() for name in names]), values)


def test_it_learns_and_writes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(minimal, "STEPS", 300)
    path = tmp_path / "text.txt"
    path.write_text("abcd" * 50, encoding="utf-8")
    assert minimal.main([str(path)]) == 0
    *steps, written = capsys.readouterr().out.splitlines()
    losses = [float(step.split()[5]) for step in steps]
    assert losses[-1] < losses[0] < np.log(4)
    assert len(written) == 416
    assert "abcdabcdabcd" in written[16:]


def test_a_short_text_is_refused(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcdefg", encoding="utf-8")
    with pytest.raises(ValueError, match="the text has 7 characters; at least 8 are needed"):
        minimal.main([str(path)])


def test_a_model_that_is_surely_wrong_has_a_finite_loss():
    loss, backward = minimal.cross_entropy(np.array([[[0.0, 1000.0, 0.0]]]), np.array([[0]]))
    assert loss == 1000
    assert np.array_equal(backward(), [[[-1, 1, 0]]])


def test_float32_stays_float32():
    p = minimal.new_parameters(V, np.random.default_rng(0))
    ids = np.zeros((2, 5), np.int64)
    logits, model_backward = minimal.model(ids, p)
    loss, loss_backward = minimal.cross_entropy(logits, ids)
    moments = {}
    gradients = model_backward(loss_backward())
    minimal.update(p, gradients, moments, 0)
    arrays = [logits, loss, *gradients.values(), *p.values(), *(each for pair in moments.values() for each in pair)]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}


def test_it_is_short_and_stands_alone():
    source = FILE.read_text(encoding="utf-8")
    assert source.count("\n") <= 300
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {"numpy", "pydoc_data.topics", "sys", "time"}
