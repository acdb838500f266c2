"""How many tokens a second a small GPT writes, one at a time from its caches, beside the same loop in PyTorch's eager mode.

    pip install torch==2.13.0        (without it, only npformer's speed is printed)
    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/decoding.py [--rounds N]

One stream, greedy, from one token to the end of the context. PyTorch's caches are there from the start, its query, key and
value come out of one product, and it has one thread, as npformer should, whose products are too small to be shared. The two
run in processes of their own and in turns, and the numbers are medians, for a busy machine. Both have the same weights; the
tokens are the same as long as rounding decides nothing, and how many are is printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from in_turns import in_turns

from npformer import GPT, GPTConfig

CONFIG = GPTConfig(vocab_size=103, max_len=256, n_layers=4, n_heads=4, d_model=128)
FIRST = 7
LENGTHS = (16, 64, 128, 192, 256)  # at which the time of a token is printed, the mean of the 16 up to there
SPAN = 16
N_WARM_UP = 2

Text = Callable[[], tuple[list[float], list[int]]]  # the time of each token, and the tokens


def npformer_text() -> Text:
    model = GPT(CONFIG)

    def write() -> tuple[list[float], list[int]]:
        cache = model.new_cache()
        ids = np.array([FIRST])
        times, text = [time.perf_counter()], []
        for _ in range(CONFIG.max_len):
            ids = model.decode_step(ids, cache).argmax(-1)
            text.append(int(ids[0]))
            times.append(time.perf_counter())
        return times, text

    return warm(write)


def pytorch_text() -> Text:
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(1)
    D, H = CONFIG.d_model, CONFIG.n_heads

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention_norm, self.feed_forward_norm = nn.LayerNorm(D), nn.LayerNorm(D)
            self.qkv, self.output = nn.Linear(D, 3 * D), nn.Linear(D, D)
            self.widen, self.narrow = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

        def forward(self, x, keys, values, position):
            B, T, _ = x.shape
            q, k, v = (each.view(B, T, H, D // H).transpose(1, 2) for each in self.qkv(self.attention_norm(x)).split(D, -1))
            end = position + T
            keys[:, :, position:end], values[:, :, position:end] = k, v
            y = functional.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end])
            x = x + self.output(y.transpose(1, 2).reshape(B, T, D))
            return x + self.narrow(functional.gelu(self.widen(self.feed_forward_norm(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.positions = nn.Embedding(CONFIG.vocab_size, D), nn.Embedding(CONFIG.max_len, D)
            self.blocks = nn.ModuleList([Block() for _ in range(CONFIG.n_layers)])
            self.norm = nn.LayerNorm(D)

        def forward(self, ids, caches, position):
            x = self.embedding(ids) + self.positions(torch.arange(position, position + ids.shape[1]))
            for block, (keys, values) in zip(self.blocks, caches, strict=True):
                x = block(x, keys, values, position)
            return functional.linear(self.norm(x), self.embedding.weight)

    model = Model().eval()
    values = {name: parameter.value for name, parameter in GPT(CONFIG).parameters().items()}

    def fill(module, *names: str) -> None:  # PyTorch's own layout is (out, in)
        if isinstance(module, nn.Linear):
            module.weight.data = torch.tensor(np.concatenate([values[f"{name}.weight"].T for name in names]))
            module.bias.data = torch.tensor(np.concatenate([values[f"{name}.bias"] for name in names]))
        elif isinstance(module, nn.Embedding):
            module.weight.data = torch.tensor(values[f"{names[0]}.table"])
        else:
            module.weight.data = torch.tensor(values[f"{names[0]}.gamma"])
            module.bias.data = torch.tensor(values[f"{names[0]}.beta"])

    fill(model.embedding, "embedding")
    fill(model.positions, "positions")
    fill(model.norm, "final_norm")
    for i, block in enumerate(model.blocks):
        name = f"layers.{i}.attention"
        fill(block.attention_norm, f"{name}.norm")
        fill(block.qkv, *(f"{name}.{part}" for part in ("query", "key", "value")))
        fill(block.output, f"{name}.output")
        name = f"layers.{i}.feed_forward"
        fill(block.feed_forward_norm, f"{name}.norm")
        fill(block.widen, f"{name}.widen")
        fill(block.narrow, f"{name}.narrow")

    def write() -> tuple[list[float], list[int]]:
        with torch.inference_mode():
            shape = (1, H, CONFIG.max_len, D // H)
            caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(CONFIG.n_layers)]
            ids = torch.tensor([[FIRST]])
            times, text = [time.perf_counter()], []
            for position in range(CONFIG.max_len):
                ids = model(ids, caches, position)[:, -1].argmax(-1, keepdim=True)
                text.append(int(ids))
                times.append(time.perf_counter())
        return times, text

    return warm(write)


TEXTS = {"npformer": npformer_text, "PyTorch": pytorch_text}


def warm(write: Text) -> Text:
    for _ in range(N_WARM_UP):
        write()
    return write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    results = in_turns(TEXTS, parser.parse_args().rounds)
    names = list(results)
    times = {name: [np.diff(moments) for moments, _ in each] for name, each in results.items()}
    texts = {name: each[-1][1] for name, each in results.items()}
    speeds = {name: 1 / statistics.median(each.mean() for each in times[name]) for name in names}
    for name in names:
        at = np.median(times[name], axis=0)
        lengths = ", ".join(f"{1e6 * at[n - SPAN : n].mean():.0f} at {n}" for n in LENGTHS)
        fastest = 1 / min(each.mean() for each in times[name])
        print(f"{name:<10}{speeds[name]:8.0f} tokens a second (fastest {fastest:.0f}); microseconds a token: {lengths}")
    if len(names) == 2:
        alike = next((i for i, (a, b) in enumerate(zip(*texts.values(), strict=True)) if a != b), CONFIG.max_len)
        print(f"npformer / PyTorch: {speeds['npformer'] / speeds['PyTorch']:.2f}   (the first {alike} tokens are the same)")


if __name__ == "__main__":
    main()
