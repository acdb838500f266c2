"""Faults put in on purpose: for every operation and layer, its lines got wrong as real code has got them wrong.

Each replaces one piece of a file of npformer. The property tests must find every one.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import npformer

PACKAGE = Path(npformer.__file__).parent


@dataclass(frozen=True)
class Wrong:
    operation: str  # the operation or layer that becomes wrong
    right: str  # as it stands in `file`, once
    wrong: str
    fault: str
    file: str = ""  # the operation's own unless given; of a layer with its folder, as layers/linear

    @property
    def path(self) -> Path:
        file = self.file or self.operation
        return PACKAGE / (f"{file}.py" if "/" in file else f"functional/{file}.py")

    def __str__(self) -> str:
        return f"{self.operation}: {self.fault}"

    def source(self) -> str:
        """The file with the fault in it."""
        source = self.path.read_text(encoding="utf-8")
        if source.count(self.right) != 1:
            raise ValueError(f"{self}: {self.path.name} holds {self.right!r} {source.count(self.right)} times")
        return source.replace(self.right, self.wrong)

    def load(self) -> Callable[..., Any]:
        """The wrong operation, from a copy of npformer.functional of its own, or the wrong layer, from a copy of its file;
        the real ones stay as they are."""
        if "/" in self.file:
            module = types.ModuleType(f"npformer.{self.file.replace('/', '.')}")
            exec(compile(self.source(), self.path, "exec"), vars(module))
            layer: Callable[..., Any] = getattr(module, self.operation)
            return layer
        with without_modules("npformer.functional"):
            finder = Finder(f"npformer.functional.{self.path.stem}", self.path, self.source())
            sys.meta_path.insert(0, finder)
            try:
                functional = importlib.import_module("npformer.functional")
            finally:
                sys.meta_path.remove(finder)
            operation: Callable[..., Any] = getattr(functional, self.operation)
            return operation


class Finder(importlib.machinery.SourceFileLoader):
    """Finds one module, and loads it from a source of its own."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        super().__init__(name, str(path))
        self.text = text

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec")


@contextmanager
def without_modules(package: str):
    """Inside, `package` is not loaded; afterwards it is as it was."""

    def loaded():
        return [name for name in sys.modules if name == package or name.startswith(f"{package}.")]

    kept = {name: sys.modules.pop(name) for name in loaded()}
    parent, _, child = package.rpartition(".")
    try:
        yield
    finally:
        for name in loaded():
            del sys.modules[name]
        sys.modules.update(kept)
        setattr(sys.modules[parent], child, kept[package])


ACTIVATIONS = [
    Wrong("relu", "np.where(off, 0, dy)", "np.where(off, 0, 1.0) * np.ones_like(dy)", "dy is left out"),
    Wrong("relu", "np.where(off, 0, dy)", "dy", "passes everything"),
    Wrong("relu", "np.where(off, 0, dy)", "np.where(dy <= 0, 0, dy)", "rectifies dy and not by x"),
    Wrong("relu", "np.where(off, 0, dy)", "np.where(off, 0, np.maximum(dy, 0))", "rectifies dy as well"),
    Wrong("relu", "off = x.real <= 0", "off = x.real < 0", "slope 1 at 0"),
    Wrong("sigmoid", "dy * y * logistic(-x)", "dy * logistic(-x)", "the factor y is missing"),
    Wrong("sigmoid", "dy * y * logistic(-x)", "dy * y", "the factor 1 − y is missing"),
    Wrong("sigmoid", "dy * y * logistic(-x)", "dy * logistic(y) * logistic(-y)", "the derivative taken at the output"),
    Wrong("tanh", "dy * tanh_slope(x)", "dy * tanh_slope(y)", "the derivative taken at the output"),
    Wrong("tanh", "dy * tanh_slope(x)", "dy * (1 - y)", "1 − y in place of 1 − y²"),
    Wrong("tanh", "dy * tanh_slope(x)", "dy", "returns its argument unchanged"),
    Wrong("silu", "gate + y * logistic(-x)", "gate", "the gate's own slope is missing"),
    Wrong("silu", "gate + y * logistic(-x)", "y * logistic(-x)", "the gate held still is missing"),
    Wrong("silu", "gate + y * logistic(-x)", "logistic(y) + y * logistic(-y)", "the derivative taken at the output"),
    Wrong("gelu", "below + x * density", "below", "the density is missing"),
    Wrong("gelu", "below + x * density", "below + density", "the factor x is missing"),
    Wrong("gelu", "below + x * density", "0.5 * erfc(-y / math.sqrt(2)) + y * density", "taken at the output"),
    Wrong("gelu", "/ math.sqrt(2 * math.pi)", "/ math.sqrt(2)", "a factor √π"),
    Wrong("gelu", "np.exp(-x * x / 2)", "np.exp(-x * x)", "the exponent is doubled"),
    Wrong(
        "gelu",
        "0.5 * erfc(-x / math.sqrt(2))",
        "0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))",
        "the tanh form in place of the exact one",
    ),
    Wrong("gelu", "0.5 * erfc(-x / math.sqrt(2))", "(1 - 0.5 * erfc(x / math.sqrt(2)))", "the left tail cancels"),
    Wrong("gelu_tanh", "gate + y * logistic(-v) * dv", "gate", "the second term is missing"),
    Wrong("gelu_tanh", "gate + y * logistic(-v) * dv", "gate + y * logistic(-v)", "the chain rule through u is missing"),
    Wrong("gelu_tanh", "SLOPE + 3 * SLOPE * CUBIC", "SLOPE + SLOPE * CUBIC", "the factor 3 is missing"),
    Wrong("gelu_tanh", "SLOPE + 3 * SLOPE * CUBIC", "SLOPE + 3 * SLOPE * 0.0447", "a constant off in the fourth digit"),
    Wrong("gelu_tanh", "SLOPE + 3 * SLOPE * CUBIC", "SLOPE + 0 * SLOPE", "the cubic term is not differentiated"),
]

SOFTMAX_AND_LOSS = [
    Wrong("softmax", "(dy - (dy * y).sum(axis, keepdims=True))", "dy", "the mean term is missing"),
    Wrong("softmax", "(dy - (dy * y).sum(axis, keepdims=True))", "dy * (1 - y)", "only the diagonal of the Jacobian"),
    Wrong("softmax", "(dy * y).sum(axis, keepdims=True)", "dy.sum(axis, keepdims=True)", "the mean is not weighted"),
    Wrong("softmax", "(dy * y).sum(axis, keepdims=True)", "(dy * y).sum(-1, keepdims=True)", "the last axis always"),
    Wrong("softmax", "dx: Array = y * (dy", "dx: Array = y / max(len(y), 1) * (dy", "divided by the batch size"),
    Wrong("softmax", "np.exp(x - np.where(blank, 0, top))", "np.exp(x)", "the maximum is not subtracted"),
    Wrong("softmax", "np.where(blank, 0, top)", "top", "a row of −inf is NaN"),
    Wrong("log_softmax", "np.exp(y) * dy.sum(axis, keepdims=True)", "np.exp(y) * dy", "the sum is missing"),
    Wrong("log_softmax", "dy - np.exp(y) * dy.sum(axis, keepdims=True)", "dy", "the whole second term is missing"),
    Wrong("log_softmax", "np.exp(y) * dy.sum(", "y * dy.sum(", "log softmax in place of softmax"),
    Wrong("log_softmax", "np.exp(y) * dy.sum(axis,", "np.exp(y) * dy.sum(-1,", "the last axis always"),
    Wrong("log_softmax", "c - (np.log(n) + np.log1p(others / n))", "np.log(e / (n + others))", "log of a softmax that is 0"),
    Wrong("log_softmax", "np.where(top == -np.inf, 0, top)", "top", "a row of −inf is NaN"),
    Wrong("cross_entropy", "dlogits[counted] = dtotal * dz", "dlogits[counted] = dz", "dtotal is left out"),
    Wrong(
        "cross_entropy",
        "dlogits[counted] = dtotal * dz",
        "dlogits[counted] = dtotal * dz / max(len(z), 1)",
        "divided by the count in one place only",
    ),
    Wrong(
        "cross_entropy",
        "dz[row, target] = np.expm1(log_softmax[row, target])",
        "dz[z == z[row, target][:, None]] -= 1",
        "the target is found by its value",
    ),
    Wrong("cross_entropy", "dz[row, target] = np.expm1", "dz[row, target] = -np.exp", "the target's own term is wrong"),
    Wrong("cross_entropy", "            dz -= label_smoothing / z.shape[-1]\n", "", "smoothing left out of dz"),
    Wrong("cross_entropy", "dz -= label_smoothing / z.shape[-1]", "dz -= label_smoothing", "smoothing not divided by V"),
    Wrong("cross_entropy", "            dz[row, target] += label_smoothing\n", "", "the target keeps its full weight"),
    Wrong(
        "cross_entropy",
        "total = total - label_smoothing * log_softmax.mean(-1).sum()",
        "total = total - label_smoothing * log_probabilities(logits, -1).mean(-1).sum()",
        "smoothing counts ignored rows",
    ),
    Wrong("cross_entropy", "targets != ignore_id", "targets == targets", "ignored rows are not ignored"),
    Wrong("cross_entropy", "return (total, len(z))", "return (total, targets.size)", "ignored rows are counted"),
    Wrong("cross_entropy", "return (total, len(z))", "return (total / len(z), len(z))", "the mean: NaN if all are ignored"),
    Wrong(
        "cross_entropy",
        "log_softmax = log_probabilities(z, axis=-1)",
        "log_softmax = np.log(np.exp(log_probabilities(z, axis=-1)))",
        "log(softmax): infinite at a confident wrong logit",
    ),
    Wrong(
        "cross_entropy", "dlogits = np.zeros(logits.shape, logits.dtype)", "dlogits = logits", "dlogits written into logits"
    ),
]

NORMS = [
    Wrong("layer_norm", "g - g.mean(-1, keepdims=True) - n", "g - n", "the mean term is missing"),
    Wrong("layer_norm", " - n * (g * n).mean(-1, keepdims=True)", "", "the variance term is missing"),
    Wrong("layer_norm", "n * (g * n).mean(-1", "c * (g * n).mean(-1", "the variance term lacks r"),
    Wrong("layer_norm", "dx = r * (", "dx = (", "the factor r is missing"),
    Wrong("layer_norm", "g = gamma * dy", "g = dy", "gamma is left out"),
    Wrong(
        "layer_norm",
        "dx = r * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))",
        "dx = gamma * r * (dy - dy.mean(-1, keepdims=True) - n * (dy * n).mean(-1, keepdims=True))",
        "gamma multiplied outside the reductions",
    ),
    Wrong("layer_norm", "(dy * n).sum(rows)", "(dy * c).sum(rows)", "dgamma from the centred row"),
    Wrong("layer_norm", "(dy * n).sum(rows), dy.sum(rows)", "dy.sum(rows), (dy * n).sum(rows)", "dgamma and dbeta swapped"),
    Wrong("layer_norm", "rows = tuple(range(dy.ndim - 1))", "rows = 0", "summed over the first axis only"),
    Wrong("layer_norm", "dy.sum(rows)", "dy.mean(rows)", "dbeta is a mean"),
    Wrong("layer_norm", "(g * n).mean(-1, keepdims=True))", "(g * n).sum(-1, keepdims=True))", "a sum in place of a mean"),
    Wrong("layer_norm", "g = gamma * dy", "dy *= gamma\n        g = dy", "dy is overwritten"),
    Wrong("layer_norm", "r = inverse_rms(c, eps)", "r = 1 / (c.std(-1, keepdims=True) + eps)", "eps outside the root"),
    Wrong(
        "layer_norm",
        "r = inverse_rms(c, eps)",
        "r = ((x * x).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2 + eps) ** -0.5",
        "E[x²] − E[x]²",
    ),
    Wrong(
        "layer_norm", "dx = r * (", "dx = inverse_rms(c, 0.0) * (", "eps left out of the backward: constant rows divide by 0"
    ),
    Wrong(
        "layer_norm", "c = x - x.mean(-1, keepdims=True)", "c = x - x.mean(0, keepdims=True)", "centred over the first axis"
    ),
    Wrong("layer_norm", "y = gamma * n + beta", "y = gamma * n + beta; n = n.real.astype('f4')", "float32 inside"),
    Wrong("rms_norm", " - n * (g * n).mean(-1, keepdims=True)", "", "the second term is missing"),
    Wrong("rms_norm", "n * (g * n).mean(-1", "x * (g * n).mean(-1", "the second term lacks r"),
    Wrong("rms_norm", "(g * n).mean(-1, keepdims=True))", "(g * n).sum(-1, keepdims=True))", "a sum in place of a mean"),
    Wrong("rms_norm", "dx = r * (", "dx = (", "the factor r is missing"),
    Wrong("rms_norm", "g = gamma * dy", "g = dy", "gamma is left out"),
    Wrong("rms_norm", "(dy * n).sum(rows)", "(dy * x).sum(rows)", "dgamma before the norm"),
    Wrong("rms_norm", "rows = tuple(range(dy.ndim - 1))", "rows = 0", "summed over the first axis only"),
]

TABLES_AND_MAPS = [
    Wrong("linear", "dx = (drows @ weight.T)", "dx = (drows @ weight)", "the transpose is missing"),
    Wrong("linear", "dweight = rows.T @ drows", "dweight = (drows.T @ rows).T * 2", "dweight doubled"),
    Wrong("linear", "drows.sum(0)", "drows.mean(0)", "dbias is a mean"),
    Wrong("linear", "drows.sum(0)", "drows.sum(0, keepdims=True)", "dbias of another shape"),
    Wrong("linear", "drows.sum(0)", "drows[:1].sum(0)", "dbias of the first row only"),
    Wrong("linear", "dweight = rows.T @ drows", "dweight = abs(rows).T @ drows", "|x| in dweight"),
    Wrong("linear", "return dx, dweight, drows.sum(0)", "return dx, drows.sum(0), dweight", "two gradients swapped"),
    Wrong(
        "linear", "y = rows @ weight", "y = rows @ weight; rows = rows.real.astype('f4').astype(x.dtype)", "float32 inside"
    ),
    Wrong(
        "embedding",
        "np.add.reduceat(rows[order], firsts, axis=0)",
        "rows[order][firsts]",
        "repeated ids: the last write wins",
    ),
    Wrong("embedding", "dtable[found] =", "dtable[ids.reshape(-1)[firsts]] =", "sums in the wrong rows"),
    Wrong("embedding", "            dtable[padding_id] = 0\n", "            pass\n", "the padding row has a gradient"),
    Wrong("embedding", "dtable[padding_id] = 0", "dtable[padding_id - 1] = 0", "the wrong row is stopped"),
    Wrong(
        "embedding",
        "    def backward(dy: Array) -> Array:\n        dtable = np.zeros(table.shape, table.dtype)\n",
        "    dtable = np.zeros(table.shape, table.dtype)\n\n    def backward(dy: Array) -> Array:\n",
        "a second call accumulates into the first's result",
    ),
    Wrong("dropout", "dx: Array = dy * m", "dx: Array = dy", "the mask is missing"),
    Wrong("dropout", "dx: Array = dy * m", "dx: Array = dy * (np.asarray(m) > 0)", "the factor 1/(1 − p) is missing"),
    Wrong("dropout", "dx: Array = dy * m", "dx: Array = dy * dropout_factor(x, p, rng)", "a fresh mask"),
    Wrong("dropout", "dx: Array = dy * m", "dx: Array = dy * (y / x)", "the mask read off y / x"),
    Wrong("dropout", "kept / np.asarray(1 - p, x.dtype)", "kept * np.asarray(1, x.dtype)", "not scaled"),
    Wrong(
        "split_heads",
        "y = x.reshape(B, T, n_heads, D // n_heads).swapaxes(1, 2)",
        "y = x.reshape(B, n_heads, T, -1)",
        "not transposed",
    ),
    Wrong("split_heads", "dy.swapaxes(1, 2).reshape(B, T, D)", "dy.reshape(B, T, D)", "the backward does not transpose"),
    Wrong(
        "merge_heads", "dy.reshape(B, T, H, K).swapaxes(1, 2)", "dy.reshape(B, H, T, K)", "the backward does not transpose"
    ),
]

POSITIONS = [
    Wrong("rotary", "return turn(dy, -sin)", "return turn(dy, sin)", "the backward turns the same way"),
    Wrong("rotary", "return turn(dy, -sin)", "return dy", "the backward does not turn"),
    Wrong("rotary", "a * sin + b * cos", "b * cos", "half of the rotation"),
    Wrong("rotary", "half if layout", "interleaved if layout", "the layouts are mixed"),
    Wrong("rotary", "angles = positions[..., None]", "angles = (positions[..., None] + 1)", "positions off by one"),
    Wrong(
        "rotary",
        "(np.cos(angles), np.sin(angles))",
        "(np.cos(angles), np.sin(angles.astype(np.float16)))",
        "angles in half precision",
    ),
    Wrong("rotary", "np.arange(0, K, 2) / K", "np.arange(0, K, 2) / (K // 2)", "the exponent is doubled"),
    Wrong("sinusoidal_positions", "angles[:, : d_model // 2]", "angles", "an odd d_model crashes"),
    Wrong("sinusoidal_positions", "table[:, 0::2] = np.sin(angles)", "table[:, 0::2] = np.cos(angles)", "no sines"),
    Wrong("alibi_bias", "np.arange(T)[:, None] + offset", "np.arange(T)[:, None]", "the offset is left out", file="alibi"),
    Wrong(
        "alibi_slopes",
        "between[: n_heads - power]",
        "between[1 : n_heads - power + 1]",
        "the wrong slopes between",
        file="alibi",
    ),
]

WEIGHTS, VISIBLE = "attention_weights", "visibility"
ATTENTION = [
    Wrong("attention", "(P * m).swapaxes(-1, -2), dy", "P.swapaxes(-1, -2), dy", "dvalue from the weights before dropout"),
    Wrong("attention", "dP = (dy @ v.swapaxes(-1, -2)) * m", "dP = dy @ v.swapaxes(-1, -2)", "the mask is missing in dP"),
    Wrong("attention", "return dquery, dkey, dv, *dbias", "return dquery, dv, dkey, *dbias", "dkey and dvalue swapped"),
    Wrong(
        "attention",
        "dv = sum_visible((P * m).swapaxes(-1, -2), dy, seen_by).sum(2)",
        "dv = sum_visible((P * m).swapaxes(-1, -2), dy, seen_by).mean(2)",
        "dvalue is a mean over the group",
    ),
    Wrong(
        "attention",
        "dv = sum_visible((P * m).swapaxes(-1, -2), dy, seen_by).sum(2)",
        "dv = sum_visible((P * m).swapaxes(-1, -2), dy, seen_by)[:, :, 0]",
        "dvalue not summed over the group",
    ),
    Wrong("attention", "dq = scale * sum_visible", "dq = sum_visible", "dquery lacks the scale", file=WEIGHTS),
    Wrong(
        "attention",
        "q = scale * query.reshape(B, G, H // G, T, K)",
        "q = query.reshape(B, G, H // G, T, K) / K",
        "1/K in place of 1/√K",
        file=WEIGHTS,
    ),
    Wrong(
        "attention",
        "sum_visible(ds.swapaxes(-1, -2), q, seen_by).sum(2)",
        "sum_visible(ds.swapaxes(-1, -2), q, seen_by)[:, :, 0]",
        "dkey not summed over the group",
        file=WEIGHTS,
    ),
    Wrong(
        "attention",
        "sum_visible(ds.swapaxes(-1, -2), q, seen_by).sum(2)",
        "sum_visible(ds.swapaxes(-1, -2), q / scale, seen_by).sum(2)",
        "dkey lacks the scale",
        file=WEIGHTS,
    ),
    Wrong(
        "attention",
        "q = scale * query.reshape(B, G, H // G, T, K)",
        "q = scale * query.reshape(B, H // G, G, T, K).swapaxes(1, 2)",
        "grouped heads tiled",
        file=WEIGHTS,
    ),
    Wrong("attention", "np.tanh(ratio)", "np.tanh(softcap * ratio)", "the cap is not divided out", file=WEIGHTS),
    Wrong("attention", "ds * tanh_slope(ratio)", "ds", "the cap's slope is missing", file=WEIGHTS),
    Wrong(
        "attention",
        "tanh_slope(ratio)",
        "tanh_slope(np.tanh(ratio))",
        "the cap's slope taken at the output",
        file=WEIGHTS,
    ),
    Wrong(
        "attention",
        "dbias = () if bias is None else (sum_repeated(ds.reshape(B, H, *ds.shape[-2:]), bias),)",
        "dbias = () if bias is None else (ds.reshape(B, H, *ds.shape[-2:]),)",
        "dbias not summed over repeated axes",
        file=WEIGHTS,
    ),
    Wrong(
        "attention",
        "np.copyto(s, -np.inf, where=~visible)",
        "np.copyto(s, np.finfo(s.real.dtype).min, where=~visible)",
        "a blind query attends uniformly",
        file=WEIGHTS,
    ),
    Wrong(
        "attention",
        "ds = zero_hidden(softmax_backward(zero_hidden(dP, visible)), visible)",
        "ds = dP",
        "softmax is not differentiated",
        file=WEIGHTS,
    ),
    Wrong(
        "attention",
        "softmax_backward(zero_hidden(dP, visible))",
        "softmax_backward(dP)",
        "poison enters through dP",
        file=WEIGHTS,
    ),
    Wrong(
        "attention",
        "P = zero_hidden(P, visible)",
        "P = P / np.where(P.sum(-1, keepdims=True) == 0, 0, 1)",
        "a blind query is NaN",
        file=WEIGHTS,
    ),
    Wrong("attention", "(ahead <= 0)[None, None]", "(ahead < 0)[None, None]", "causal off by one", file=VISIBLE),
    Wrong("attention", "(ahead <= 0)[None, None]", "(ahead >= 0)[None, None]", "the future is visible", file=VISIBLE),
    Wrong("attention", "- (c or 0)", "- (c or 0) * 0", "the alignment is ignored", file=VISIBLE),
    Wrong(
        "attention",
        'conditions.append(four_axes(title, "keep", keep, sizes))',
        'conditions.append(~four_axes(title, "keep", keep, sizes))',
        "keep's polarity inverted",
        file=VISIBLE,
    ),
    Wrong("attention", "left, right = window - 1, 0", "left, right = window, 0", "a window of W + 1", file=VISIBLE),
    Wrong("attention", "(ahead <= right)", "(ahead < right)", "a window that lacks its right end", file=VISIBLE),
    Wrong(
        "attention",
        'shut = four_axes(title, "bias", bias, sizes).real == -np.inf',
        'shut = four_axes(title, "bias", bias, sizes).real < -1e30',
        "a huge negative bias is a mask",
        file=VISIBLE,
    ),
    Wrong("attention", "if visible is None or np.isfinite(y).all():", "if True:", "0·NaN from hidden keys", file=VISIBLE),
    Wrong("attention", "        if T != S:", "        if T == S:", "causal=True refused where it is right", file=VISIBLE),
    Wrong("attention", "        return 0\n", "        return 1\n", "causal=True sees the next key", file=VISIBLE),
    Wrong("attention", "        if not causal:", "        if True:", "causal=True is ignored", file=VISIBLE),
    Wrong("attention_weights", "dq = scale * sum_visible", "dq = sum_visible", "dquery lacks the scale"),
    Wrong(
        "attention_weights",
        "return weigh_backward(dP.reshape(P.shape))",
        "return weigh_backward(dP.reshape(P.shape))[::-1]",
        "gradients swapped",
    ),
    Wrong(
        "attention_weights",
        "dk = sum_visible(ds.swapaxes(-1, -2), q, seen_by).sum(2)",
        "dk = sum_visible(ds.swapaxes(-1, -2), q, seen_by).mean(2)",
        "dkey is a mean over the group",
    ),
]

MAPS = [
    Wrong(
        "Linear",
        "self.weight.grad += dweight",
        "self.weight.grad[...] = dweight",
        "a second call overwrites",
        "layers/linear",
    ),
    Wrong("Linear", "self.weight.grad += dweight", "self.weight.grad += dweight / len(dy)", "a mean", "layers/linear"),
    Wrong("Linear", "self.bias.grad += dbias[0]", "pass", "the bias is forgotten", "layers/linear"),
    Wrong("Linear", "return dx\n", "return 0 * dx\n", "the graph is cut", "layers/linear"),
    Wrong("Embedding", "grad += embedding_backward", "grad[...] = embedding_backward", "overwrites", "layers/embedding"),
    Wrong("Embedding", "(ids, self.table.value, self.padding_id)", "(ids, self.table.value)", "padding", "layers/embedding"),
    Wrong("Embedding", "embedding_backward(self.scale * dy)", "embedding_backward(dy)", "no scale", "layers/embedding"),
    Wrong(
        "Embedding",
        "embedding_backward(self.scale * dy)",
        "self.scale * embedding_backward(self.scale * dy)",
        "the scale twice",
        "layers/embedding",
    ),
    Wrong("TiedOutput", "self.bias.grad += dbias[0]", "pass", "the bias is forgotten", "layers/tied_output"),
    Wrong("TiedOutput", "self.table.grad += dweight.T", "pass", "the table is forgotten", "layers/tied_output"),
    Wrong("TiedOutput", "self.table.grad += dweight.T", "self.table.grad -= dweight.T", "a sign", "layers/tied_output"),
    Wrong(
        "LayerNorm",
        "self.gamma.grad += dgamma\n            if self.beta:",
        "self.gamma.grad += dbeta\n            if self.beta:",
        "gamma gets beta's",
        "layers/norms",
    ),
    Wrong("LayerNorm", "self.beta.grad += dbeta", "self.beta.grad += 2 * dbeta", "beta doubled", "layers/norms"),
    Wrong("RMSNorm", "dx, dgamma = norm_backward(dy)", "dx, dgamma = norm_backward(abs(dy))", "|dy|", "layers/norms"),
    Wrong("RMSNorm", "dx, dgamma = norm_backward(dy)", "dx, dgamma = dy, norm_backward(dy)[1]", "dx is dy", "layers/norms"),
    Wrong(
        "Dropout",
        "return dropout(x, self.p, rng)",
        "return dropout(x, self.p, rng)[0], lambda dy: dy",
        "the backward has no mask",
        "layers/dropout",
    ),
    Wrong(
        "Dropout",
        "return dropout(x, self.p, rng)",
        "return dropout(x, self.p, rng)[0], lambda dy: dropout(dy, self.p, rng)[0]",
        "the backward has a mask of its own",
        "layers/dropout",
    ),
]

FEED_FORWARD = [
    Wrong("FeedForward", "bend_backward(drop_backward(", "(drop_backward(", "the bend is forgotten", "layers/feed_forward"),
    Wrong("FeedForward", "bend_backward(drop_backward(", "bend_backward((", "the mask is forgotten", "layers/feed_forward"),
    Wrong(
        "FeedForward",
        "self.activation(wide)",
        "self.activation(1 * wide)[0], silu(wide)[1]",
        "another",
        "layers/feed_forward",
    ),
    Wrong(
        "GatedFeedForward",
        "bend_backward(dproduct * wide)",
        "(dproduct * wide)",
        "the bend is forgotten",
        "layers/feed_forward",
    ),
    Wrong(
        "GatedFeedForward",
        "bend_backward(dproduct * wide)",
        "bend_backward(dproduct * bent)",
        "its own half",
        "layers/feed_forward",
    ),
    Wrong(
        "GatedFeedForward",
        "widen_backward(dproduct * bent)",
        "widen_backward(dproduct * opened)",
        "unbent",
        "layers/feed_forward",
    ),
    Wrong(
        "GatedFeedForward",
        "return gate_backward(bend_backward(dproduct * wide)) + widen_backward(dproduct * bent)",
        "gate_backward(bend_backward(dproduct * wide)); return widen_backward(dproduct * bent)",
        "only one of the two ways to x",
        "layers/feed_forward",
    ),
    Wrong(
        "GatedFeedForward",
        "dproduct = drop_backward(narrow_backward(dy))",
        "dproduct = narrow_backward(dy)",
        "the mask is forgotten",
        "layers/feed_forward",
    ),
]

MULTI_HEAD = [
    Wrong("MultiHeadAttention", right, wrong, fault, "layers/multi_head_attention")
    for right, wrong, fault in [
        ("is not None else dx + dm", "is not None else dx", "x only as what asks"),
        ("is not None else dx + dm", "is not None else dm", "x only as what is asked"),
        ("(dx + dm, *earlier)", "(dx, *earlier)", "with a cache x only as what asks"),
        ("return dx, dm\n", "return dx, 2 * dm\n", "the memory doubled"),
        ("return dx, dm\n", "return dm, dx\n", "two gradients swapped"),
        ("if later:", "if False:", "later tokens owe nothing"),
        ("dk + later[0], dv + later[1]", "dk + later[1], dv + later[0]", "what is owed to keys and values swapped"),
        ("dk + later[0], dv + later[1]", "dk + later[0], dv", "nothing is owed to the values"),
        ("*earlier, dk, dv = append", "*earlier, dv, dk = append", "the tokens' own keys and values swapped"),
        (
            "*earlier, dk, dv = append_backward(dk, dv)",
            "*earlier, dk, dv = append_backward(dk, dv); earlier = [0 * d for d in earlier]",
            "nothing is owed to the earlier tokens",
        ),
        (
            "*earlier, dk, dv = append_backward(dk, dv)",
            "*earlier, dk, dv = append_backward(dk, dv); earlier = earlier[::-1]",
            "what is owed to the earlier keys and values swapped",
        ),
        (
            " + value_backward(split_v_backward(dv))",
            " + 0 * value_backward(split_v_backward(dv))",
            "the values do not reach m",
        ),
        ("dm = key_backward(split_k_backward(dk)) +", "dm =", "the keys' parameters get nothing"),
        ("dq, dk, dv, *_ =", "dk, dq, dv, *_ =", "queries and keys swapped"),
        ("turn_q_backward(dq), turn_k_backward(dk)", "dq, turn_k_backward(dk)", "queries are not turned back"),
        ("turn_q_backward(dq), turn_k_backward(dk)", "turn_q_backward(dq), dk", "keys are not turned back"),
        (
            "merge_backward(output_backward(dy))",
            "merge_backward(output_backward(dy).real.astype('f4').astype(dy.dtype))",
            "f4",
        ),
    ]
]

AROUND = [
    Wrong(
        "LearnedPositions", "self.table.grad += dtable", "self.table.grad[...] = dtable", "overwrites", "layers/positions"
    ),
    Wrong("LearnedPositions", "drows = dy.sum(0)", "drows = dy.mean(0)", "a mean over the batch", "layers/positions"),
    Wrong("LearnedPositions", "drows = dy.sum(0)", "drows = dy[0]", "the first of the batch only", "layers/positions"),
    Wrong(
        "LearnedPositions",
        "rows_backward(np.where(there, drows, 0))",
        "rows_backward(drows)",
        "hidden positions have a gradient",
        "layers/positions",
    ),
    Wrong(
        "LearnedPositions",
        "return dy, rows_backward(",
        "return np.where(there, dy, 0), rows_backward(",
        "hidden positions have none beside the table",
        "layers/positions",
    ),
    Wrong(
        "SinusoidalPositions",
        "        return dy\n",
        "        return np.where((positions >= 0)[..., None], dy, 0)\n",
        "hidden positions have no gradient",
        "layers/positions",
    ),
    Wrong(
        "RotaryPositions",
        "return rotary(x, p if p.ndim == 1 else p[:, None], self.base, self.layout)",
        "return rotary(x, p if p.ndim == 1 else p[:, None], self.base, self.layout)[0], lambda dy: dy",
        "not turned back",
        "layers/positions",
    ),
    Wrong("Residual", "dx = beside + (", "dx = (", "the way beside the layer is missing", "layers/residual"),
    Wrong("Residual", "dx = beside + (", "dx = dy + (", "the way beside misses the post-norm", "layers/residual"),
    Wrong(
        "Residual", "(pre_backward(through) if pre_backward else through)", "through", "misses the norm", "layers/residual"
    ),
    Wrong("Residual", "layer_backward(drop_backward(beside), *", "layer_backward(beside, *", "the mask", "layers/residual"),
    Wrong("Residual", "(beside), *other_dys)", "(beside))", "what is owed to the layer", "layers/residual"),
    Wrong(
        "Residual", "return (dx, *dothers)", "return (dx, *(-d for d in dothers))", "the memory's sign", "layers/residual"
    ),
]

OF_A_LAYER = [
    Wrong("EncoderLayer", right, wrong, fault, "layers/encoder_layer")
    for right, wrong, fault in [
        ("attention_backward(feed_forward_backward(dy))", "attention_backward(dy)", "the feed-forward network is forgotten"),
        (
            "attention_backward(feed_forward_backward(dy))",
            "feed_forward_backward(attention_backward(dy))",
            "in the forward's order",
        ),
    ]
] + [
    Wrong("DecoderLayer", right, wrong, fault, "layers/decoder_layer")
    for right, wrong, fault in [
        ("dx = feed_forward_backward(dy)", "dx = dy", "the feed-forward network is forgotten"),
        ("dx, *dmemory = cross_backward(dx)", "_, *dmemory = cross_backward(dx)", "cross-attention only for the memory"),
        (
            "dx, *dmemory = cross_backward(dx)",
            "dx, *dmemory = cross_backward(dx); dmemory = [0 * dmemory[0]]",
            "the memory gets nothing",
        ),
        (
            "dx = feed_forward_backward(dy)\n            dmemory: Any = ()\n            if self.cross_attention:\n"
            "                dx, *dmemory = cross_backward(dx)",
            "dx = dy\n            dmemory: Any = ()\n            if self.cross_attention:\n"
            "                dx, *dmemory = cross_backward(dx)\n            dx = feed_forward_backward(dx)",
            "the first two in the forward's order",
        ),
        ("attention_backward(dx, *later)", "attention_backward(dx)", "what is owed to its keys and values is dropped"),
        ("return dx, *dmemory, *earlier", "return dx, *dmemory, *earlier[::-1]", "what it owes to keys and values swapped"),
    ]
]

STACK = [
    Wrong("Stack", right, wrong, fault, "models/stack")
    for right, wrong, fault in [
        ("reversed(range(len(layer_backwards)))", "range(len(layer_backwards))", "the layers in the forward's order"),
        ("dx = dx if keep is None else", "dx = dx if True else", "hidden features have a gradient"),
        ("            if norm_backward:", "            if False:", "the final norm is forgotten"),
        ("dx = drop_backward(dx)", "pass", "the mask on the embeddings is forgotten"),
        ("dx = positions_backward(dx)", "pass", "the positions are forgotten"),
        ("types_backward(dx)", "pass", "the token types are forgotten"),
        ("            embedding_backward(dx)\n", "", "the embedding is forgotten"),
        ("[sum(dmemories)]", "[dmemories[0]]", "the memory of the last layer only"),
        ("[sum(dmemories)]", "[dmemories[-1]]", "the memory of the first layer only"),
        ("(later[i] if later else ())", "()", "what is owed to the layers is dropped"),
        ("(later[i] if later else ())", "(later[-1 - i] if later else ())", "what is owed goes to the wrong layers"),
        ("earlier.insert(0, (dkeys, dvalues))", "earlier.append((dkeys, dvalues))", "what it owes in the wrong order"),
    ]
]

MODELS = (
    [
        Wrong("GPT", "decoder_backward(output_backward(dlogits), later)", wrong, fault, "models/gpt")
        for wrong, fault in [
            ("decoder_backward(output_backward(dlogits))", "what later tokens owe is dropped"),
            ("decoder_backward(2 * output_backward(dlogits), later)", "all but the output doubled"),
        ]
    ]
    + [
        Wrong("EncoderDecoder", right, wrong, fault, "models/encoder_decoder")
        for right, wrong, fault in [
            ("            encoder_backward(dmemory)\n", "", "the encoder is forgotten"),
            ("encoder_backward(dmemory)", "encoder_backward(-dmemory)", "the memory's sign"),
        ]
    ]
    + [
        Wrong("Encoder", right, wrong, fault, "models/encoder")
        for right, wrong, fault in [
            (
                "dx: Array = weights[..., None] * dy[:, None]",
                "dx: Array = np.ones_like(x) * dy[:, None]",
                "no weights of pooling",
            ),
            (
                "dx: Array = weights[..., None] * dy[:, None]",
                "dx: Array = dy[:, None] / x.shape[1] + 0 * x",
                "a mean of all",
            ),
            (
                "            if output_backward:\n                dy = output_backward(dy)\n            if pool",
                "            if pool",
                "the outputs",
            ),
            ("            encoder_backward(dy)\n", "            encoder_backward(dy / len(dy))\n", "a mean over the batch"),
        ]
    ]
)

OF_OPERATIONS = [*ACTIVATIONS, *SOFTMAX_AND_LOSS, *NORMS, *TABLES_AND_MAPS, *POSITIONS, *ATTENTION]
OF_LAYERS = [*MAPS, *FEED_FORWARD, *MULTI_HEAD, *AROUND, *OF_A_LAYER, *STACK, *MODELS]
WRONG = [*OF_OPERATIONS, *OF_LAYERS]
