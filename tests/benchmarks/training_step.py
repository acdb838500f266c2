"""How long a training step of demos/char_lm's default model takes, beside the same step in PyTorch's eager mode.

    pip install torch==2.13.0        (without it, only npformer's time is printed)
    python tests/benchmarks/training_step.py [--rounds N]

A step is forward, backward, clipping and AdamW. The two run in processes of their own, so that neither's idle threads slow
down the other, and in turns; the numbers are medians, for a busy machine. Both start from the same weights and see the same
batches, so the last losses, which are printed, show that they do the same.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from in_turns import in_turns

from npformer import GPT, GPTConfig
from npformer.training import Trainer, TrainingConfig

CONFIG = GPTConfig(vocab_size=103, max_len=64, n_layers=4, n_heads=4, d_model=128, bias=False)
TRAINING = TrainingConfig(n_steps=2000, batch_size=12)
STEPS_A_TURN = 6  # of which the first is not counted
N_WARM_UP = 5


def trainer() -> Trainer:
    tokens = np.random.default_rng(0).integers(CONFIG.vocab_size, size=50_000)
    return Trainer(GPT(CONFIG), tokens, TRAINING)


def npformer_step() -> Callable[[], float]:
    ours = trainer()
    return lambda: ours.step().loss


def pytorch_step() -> Callable[[], float]:
    import torch
    from torch.nn import functional

    torch.set_num_threads(multiprocessing.cpu_count())
    ours = trainer()
    values = {name: parameter.value for name, parameter in ours.model.parameters().items()}
    for i in range(CONFIG.n_layers):  # one product for query, key and value, as nanoGPT has it
        parts = [values.pop(f"layers.{i}.attention.{part}.weight") for part in ("query", "key", "value")]
        values[f"layers.{i}.attention.qkv.weight"] = np.concatenate(parts, axis=1)
    w = {  # PyTorch's own layout is (out, in)
        name: torch.tensor(value.T if name.endswith("weight") else value).contiguous().requires_grad_()
        for name, value in values.items()
    }
    decayed = [value for value in w.values() if value.ndim == 2]
    others = [value for value in w.values() if value.ndim != 2]
    config = ours.config
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda t: (t + 1) / (config.n_warmup + 1))
    batch = iter(range(10**9))
    D, H = CONFIG.d_model, CONFIG.n_heads

    def loss_of(ids, targets):
        B, T = ids.shape
        x = functional.embedding(ids, w["embedding.table"]) + w["positions.table"][:T]
        for i in range(CONFIG.n_layers):
            name = f"layers.{i}.attention"
            n = functional.layer_norm(x, (D,), w[f"{name}.norm.gamma"])
            q, k, v = (
                each.view(B, T, H, D // H).transpose(1, 2)
                for each in functional.linear(n, w[f"{name}.qkv.weight"]).split(D, -1)
            )
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
            x = x + functional.linear(y, w[f"{name}.output.weight"])
            name = f"layers.{i}.feed_forward"
            n = functional.layer_norm(x, (D,), w[f"{name}.norm.gamma"])
            wide = functional.gelu(functional.linear(n, w[f"{name}.widen.weight"]), approximate="tanh")
            x = x + functional.linear(wide, w[f"{name}.narrow.weight"])
        x = functional.layer_norm(x, (D,), w["final_norm.gamma"])
        return functional.cross_entropy((x @ w["embedding.table"].mT).flatten(0, 1), targets.flatten())

    def step() -> float:
        ids, targets = ours.batches.batch(next(batch))
        loss = loss_of(torch.from_numpy(ids), torch.from_numpy(targets))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(w.values()), config.clip)
        optimiser.step()
        schedule.step()
        return loss.item()

    return step


def turn_of(make_step: Callable[[], Callable[[], float]]) -> Callable[[], tuple[list[float], float]]:
    """A turn of steps: their times, and the last loss."""
    step = make_step()
    for _ in range(N_WARM_UP):
        step()

    def turn() -> tuple[list[float], float]:
        times = []
        for _ in range(STEPS_A_TURN):
            start = time.perf_counter()
            loss = step()
            times.append(time.perf_counter() - start)
        return times[1:], loss

    return turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=12)
    programs = {"npformer": partial(turn_of, npformer_step), "PyTorch": partial(turn_of, pytorch_step)}
    results = in_turns(programs, parser.parse_args().rounds)
    names = list(results)
    times = {name: [each for turn, _ in results[name] for each in turn] for name in names}
    losses = {name: results[name][-1][1] for name in names}
    medians = {name: statistics.median(each) for name, each in times.items()}
    for name in names:
        median, fastest = 1000 * medians[name], 1000 * min(times[name])
        print(f"{name:<10}{median:7.1f} ms a step (fastest {fastest:.1f}), last loss {losses[name]:.5f}")
    if len(names) == 2:
        print(f"npformer / PyTorch: {medians['npformer'] / medians['PyTorch']:.2f}")


if __name__ == "__main__":
    main()
