"""One attention head, cut into the lines of npformer that compute it, and every gradient in it found by gradcheck."""

import numpy as np

from demos.by_hand.pairs import found_by_gradcheck
from demos.by_hand.quoting import line_of
from npformer.functional import attention, attention_weights, softmax
from npformer.functional.visibility import by_group, visible_pairs
from npformer.operation import Array

LINES = {
    "scale": (attention_weights, "scale = 1 /"),
    "q": (attention_weights, "q = scale *"),
    "k": (attention_weights, "k = key["),
    "s": (attention_weights, "s = q @"),
    "hidden": (attention_weights, "np.copyto(s, -np.inf"),
    "top": (softmax, "top = x"),
    "blank": (softmax, "blank = "),
    "e": (softmax, "e = np.exp("),
    "total": (softmax, "total = e"),
    "P": (softmax, "y = e /"),
    "v": (attention, "v = value["),
    "y": (attention, "y = sum_visible("),
    "dv": (attention, "dv = "),
    "dP": (attention, "dP = "),
    "ds": (softmax, "dx: Array = "),
    "dq": (attention_weights, "dq = "),
    "dk": (attention_weights, "dk = "),
}


class Head:
    """The forward and the backward of `attention` with causal=True, cut where a student wants to look in between.

    query and key (T, K), value and dy (T, V). B = H = 1 everywhere, so that the scores s and the weights P are (1,1,1,T,T).
    """

    def __init__(self, query: Array, key: Array, value: Array, dy: Array) -> None:
        self.lines = {name: line_of(*place) for name, place in LINES.items()}
        self.query, self.key, self.value, self.dy = (array[None, None] for array in (query, key, value, dy))
        self.T, self.K = query.shape
        self.visible = by_group(visible_pairs("by_hand", (1, 1, self.T, self.T), None, None, True, None), 1)
        self.scale = self.lines["scale"].run("scale", scale=None, K=self.K)

    def scaled(self, query: Array) -> Array:
        return self.lines["q"].run("q", scale=self.scale, query=query, B=1, G=1, H=1, T=self.T, K=self.K)

    def keys(self, key: Array) -> Array:
        return self.lines["k"].run("k", key=key)

    def values(self, value: Array) -> Array:
        return self.lines["v"].run("v", value=value)

    def scores(self, query: Array, key: Array) -> Array:
        return self.lines["s"].run("s", q=self.scaled(query), k=self.keys(key))

    def hidden(self, s: Array) -> Array:
        return self.lines["hidden"].run("s", s=s.copy(), visible=self.visible)

    def softmax(self, s: Array) -> tuple[Array, Array, Array]:
        """e, its sum over each row, and P, of scores that are masked already."""
        top = self.lines["top"].run("top", x=s, axis=-1)
        blank = self.lines["blank"].run("blank", top=top)
        e = self.lines["e"].run("e", x=s, top=top, blank=blank)
        total = self.lines["total"].run("total", e=e, axis=-1)
        return e, total, self.lines["P"].run("y", e=e, total=total, blank=blank)

    def weights(self, s: Array) -> Array:
        return self.softmax(self.hidden(s))[2]

    def output(self, P: Array, value: Array) -> Array:
        return self.lines["y"].run("y", P=P, m=1, v=self.values(value), visible=self.visible)

    def backward(self) -> dict[str, Array]:
        """dv, dP, ds, dq and dk, each of two axes."""
        s = self.scores(self.query, self.key)
        P, dy, seen_by = self.weights(s), self.dy[:, :, None], self.visible.swapaxes(-1, -2)
        dv = self.lines["dv"].run("dv", P=P, m=1, dy=dy, seen_by=seen_by)
        dP = self.lines["dP"].run("dP", dy=dy, v=self.values(self.value), m=1)
        ds = self.lines["ds"].run("dx", y=P, dy=dP, axis=-1)
        dq = self.lines["dq"].run("dq", scale=self.scale, ds=ds, k=self.keys(self.key), visible=self.visible)
        dk = self.lines["dk"].run("dk", ds=ds, q=self.scaled(self.query), seen_by=seen_by)
        gradients = {"dv": dv, "dP": dP, "ds": ds, "dq": dq, "dk": dk}
        return {name: rows_of(array) for name, array in gradients.items()}

    def found(self) -> dict[str, Array]:
        """The same by gradcheck, each from the rest of the forward: L = Σ dy·y, however y comes about."""
        query, key, value = self.query, self.key, self.value
        s = self.scores(query, key)

        def loss(y: Array) -> Array:
            return (self.dy * y.reshape(self.dy.shape)).sum()

        def whole(*arrays: Array) -> Array:
            dtype = np.result_type(*arrays)  # one of them is complex
            return loss(attention(*(array.astype(dtype) for array in arrays), causal=True)[0])

        gradients = {
            "dv": found_by_gradcheck(lambda value: whole(query, key, value), value),
            "dP": found_by_gradcheck(lambda P: loss(self.output(P, value)), self.weights(s)),
            "ds": found_by_gradcheck(lambda s: loss(self.output(self.weights(s), value)), s),
            "dq": found_by_gradcheck(lambda query: whole(query, key, value), query),
            "dk": found_by_gradcheck(lambda key: whole(query, key, value), key),
        }
        return {name: rows_of(array) for name, array in gradients.items()}


def rows_of(array: Array) -> Array:
    """(1, …, 1, T, D) → (T, D): B, H and the axes that grouped heads would need."""
    return array.reshape(array.shape[-2:])
