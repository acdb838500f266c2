"""A whole character model in one file, to be read in an evening: NumPy and nothing else of ours.

    python demos/minimal.py [FILE]            learns the file, or Python's own documentation, and writes on

Everything is one idea: an operation returns its output and its own backward pass, a function that takes dy, how much the
loss grows for each entry of y, and returns the same for the inputs. The chain rule is then to call the backward passes from
the last to the first. Letters: B texts side by side, T places in each, D features, H heads of K features, V characters.
"""

import pydoc_data.topics
import sys
import time

import numpy as np

N_LAYERS, H, D, T = 4, 4, 128, 64
BATCH, STEPS, WARM_UP = 12, 2000, 100
RATE, LAST_RATE, DECAY, BETA1, BETA2, LONGEST = 1e-3, 1e-4, 0.1, 0.9, 0.99, 1.0


# The operations.


def embed(ids, table):
    """y_t = table[id_t]. A row that was looked up several times gets the sum of its gradients."""

    def backward(dy):
        dtable = np.zeros_like(table)
        np.add.at(dtable, ids, dy)
        return dtable

    return table[ids], backward


def linear(x, W):
    """y = x W, so dx = dy Wᵀ; W serves every row, so dW = xᵀ dy sums over all of them."""

    def backward(dy):
        dW = x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])
        return dy @ W.T, dW

    return x @ W, backward


def layer_norm(x, gamma):
    """Every row is given mean 0 and variance 1: n = (x − mean)·r, y = γ·n.

    dx = r·(g − mean(g) − n·mean(g·n)) with g = γ·dy: what shifts or stretches a whole row changes nothing.
    """
    c = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)
    n = c * r

    def backward(dy):
        g = gamma * dy
        dx = r * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))
        return dx, (dy * n).reshape(-1, len(gamma)).sum(0)

    return gamma * n, backward


def gelu(x):
    """y = x·½·(1 + tanh u) with u = √(2/π)·(x + 0.044715·x³): the product rule, and the chain rule through u."""
    a = (2 / np.pi) ** 0.5
    t = np.tanh(a * (x + 0.044715 * x**3))

    def backward(dy):
        du = a * (1 + 3 * 0.044715 * x * x)
        return dy * 0.5 * (1 + t + x * (1 - t * t) * du)

    return 0.5 * x * (1 + t), backward


def softmax(s):
    """y = exp(s) / Σ exp(s). ∂y_i/∂s_j = y_i·([i = j] − y_j), so ds = y·(dy − Σ dy·y)."""
    e = np.exp(s - s.max(-1, keepdims=True))  # the largest taken off changes nothing, and nothing overflows
    y = e / e.sum(-1, keepdims=True)

    def backward(dy):
        return y * (dy - (dy * y).sum(-1, keepdims=True))

    return y, backward


def attention(q, k, v):
    """P = softmax(q kᵀ/√K) over the keys up to the query's own place, y = P v; each (B,H,T,K).

    Products of matrices again: dP = dy vᵀ, dv = Pᵀ dy, and with ds from softmax dq = ds k/√K, dk = dsᵀ q/√K.
    """
    t = q.shape[2]
    scale = q.shape[3] ** -0.5
    later = np.triu(np.ones((t, t), bool), 1)
    P, softmax_backward = softmax(np.where(later, -np.inf, scale * q @ k.swapaxes(2, 3)))  # (B,H,T,T)

    def backward(dy):
        ds = scale * softmax_backward(dy @ v.swapaxes(2, 3))  # P is 0 where a key is later, and so is ds
        return ds @ k, ds.swapaxes(2, 3) @ q, P.swapaxes(2, 3) @ dy

    return P @ v, backward


def cross_entropy(logits, targets):
    """The mean of −log softmax(logits)[target]; its slope is (softmax − 1 at the target) / how many there are."""
    z = logits - logits.max(-1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))  # not log(softmax), which is log 0 where the model is surely wrong
    at = (*np.indices(targets.shape), targets)

    def backward():
        d = np.exp(log_p)
        d[at] -= 1
        return d / targets.size

    return -log_p[at].mean(), backward


# The model: a dict of arrays, and for the gradients a dict with the same names.


def new_parameters(n_characters, rng, dtype=np.float32):
    """GPT-2's start: deviation 0.02, less where a residual ends, so that their sum does not grow with the depth."""
    end = 0.02 / (2 * N_LAYERS) ** 0.5
    shapes = {"table": (n_characters, D, 0.02), "positions": (T, D, 0.02)}
    for i in range(N_LAYERS):
        shapes |= {f"{i}.{name}": (D, D, 0.02) for name in ("query", "key", "value")}
        shapes |= {f"{i}.output": (D, D, end), f"{i}.widen": (D, 4 * D, 0.02), f"{i}.narrow": (4 * D, D, end)}
    p = {name: (size * rng.standard_normal(shape)).astype(dtype) for name, (*shape, size) in shapes.items()}
    gains = ["norm", *(f"{i}.{name}" for i in range(N_LAYERS) for name in ("norm1", "norm2"))]
    return p | {name: np.ones(D, dtype) for name in gains}


def split(x):
    return x.reshape(*x.shape[:2], H, -1).swapaxes(1, 2)  # (B,T,D) → (B,H,T,K)


def merge(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)  # (B,H,T,K) → (B,T,D)


def layer(x, p, i):
    """x + attention(norm(x)), then x + feed_forward(norm(x)). Beside each the input passes, so there gradients add up."""
    n1, norm1_backward = layer_norm(x, p[f"{i}.norm1"])
    q, query_backward = linear(n1, p[f"{i}.query"])
    k, key_backward = linear(n1, p[f"{i}.key"])
    v, value_backward = linear(n1, p[f"{i}.value"])
    found, attention_backward = attention(split(q), split(k), split(v))
    y, output_backward = linear(merge(found), p[f"{i}.output"])
    x = x + y
    n2, norm2_backward = layer_norm(x, p[f"{i}.norm2"])
    wide, widen_backward = linear(n2, p[f"{i}.widen"])
    bent, gelu_backward = gelu(wide)
    y, narrow_backward = linear(bent, p[f"{i}.narrow"])

    def backward(dx, g):
        dbent, g[f"{i}.narrow"] = narrow_backward(dx)
        dn2, g[f"{i}.widen"] = widen_backward(gelu_backward(dbent))
        through, g[f"{i}.norm2"] = norm2_backward(dn2)
        dx = dx + through
        dfound, g[f"{i}.output"] = output_backward(dx)
        dq, dk, dv = attention_backward(split(dfound))
        from_q, g[f"{i}.query"] = query_backward(merge(dq))
        from_k, g[f"{i}.key"] = key_backward(merge(dk))
        from_v, g[f"{i}.value"] = value_backward(merge(dv))
        through, g[f"{i}.norm1"] = norm1_backward(from_q + from_k + from_v)
        return dx + through

    return x + y, backward


def model(ids, p):
    """ids (B,T) → logits (B,T,V), and backward(dlogits) → the gradient of every parameter."""
    x, embed_backward = embed(ids, p["table"])
    x = x + p["positions"][: ids.shape[1]]
    backwards = []
    for i in range(N_LAYERS):
        x, backward = layer(x, p, i)
        backwards.append(backward)
    x, norm_backward = layer_norm(x, p["norm"])
    logits, logits_backward = linear(x, p["table"].T)  # the table of the embedding once more

    def backward(dlogits):
        g = {"positions": np.zeros_like(p["positions"])}
        dx, dtable = logits_backward(dlogits)
        dx, g["norm"] = norm_backward(dx)
        for layer_backward in reversed(backwards):
            dx = layer_backward(dx, g)
        g["positions"][: ids.shape[1]] = dx.sum(0)
        g["table"] = dtable.T + embed_backward(dx)  # it was used twice
        return g

    return logits, backward


# Training and writing.


def update(p, g, moments, step):
    """AdamW: every number moves by its mean gradient, in units of how large its gradients are; matrices decay."""
    length = sum(float((d * d).sum()) for d in g.values()) ** 0.5
    down = 0.5 * (1 + np.cos(np.pi * (step - WARM_UP) / (STEPS - WARM_UP)))
    rate = RATE * (step + 1) / (WARM_UP + 1) if step < WARM_UP else LAST_RATE + (RATE - LAST_RATE) * down
    for name, x in p.items():
        m, v = moments.setdefault(name, (np.zeros_like(x), np.zeros_like(x)))
        d = g[name] * min(1.0, LONGEST / (length + 1e-12))
        m += (1 - BETA1) * (d - m)
        v += (1 - BETA2) * (d * d - v)
        mean, square = m / (1 - BETA1 ** (step + 1)), v / (1 - BETA2 ** (step + 1))
        x -= float(rate) * (mean / (np.sqrt(square) + 1e-8) + (DECAY * x if x.ndim == 2 else 0))


def write(p, ids, n, characters, rng, temperature=0.8):
    for _ in range(n):
        logits, _ = model(np.array([ids[-T:]]), p)
        chance, _ = softmax(logits[0, -1].astype(np.float64) / temperature)
        ids.append(int(rng.choice(len(characters), p=chance)))
    return "".join(characters[i] for i in ids)


def main(arguments=()):
    topics = pydoc_data.topics.topics
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if arguments:
        with open(arguments[0], encoding="utf-8-sig") as file:
            text = file.read()
    else:
        text = "\n\n".join(topics[key] for key in sorted(topics))
    characters = sorted(set(text))
    numbers = {character: i for i, character in enumerate(characters)}
    ids = np.array([numbers[character] for character in text])
    if len(ids) <= T:
        raise ValueError(f"the text has {len(ids)} characters; at least {T + 1} are needed")
    rng = np.random.default_rng(0)
    p, moments, started = new_parameters(len(characters), rng), {}, time.monotonic()
    for step in range(STEPS):
        places = rng.integers(len(ids) - T, size=(BATCH, 1)) + np.arange(T)
        logits, model_backward = model(ids[places], p)
        loss, loss_backward = cross_entropy(logits, ids[places + 1])
        update(p, model_backward(loss_backward()), moments, step)
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} of {STEPS}  loss {loss:.3f}  {time.monotonic() - started:.0f} s", flush=True)
    print(write(p, list(ids[:16]), 400, characters, rng))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
