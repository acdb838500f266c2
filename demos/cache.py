"""What the cache of keys and values saves in time, and what it costs in memory, as the context grows."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from demos.numbers import count
from npformer import GPT, GPTConfig
from npformer.command_line import Parser, run_command
from npformer.memory import keep_freed_memory

TITLE = "cache"
VOCAB_SIZE, WINDOW, LONGEST = 100, 128, 1024
N_TIMED, SECONDS = 15, 0.5  # at most so many tokens, or so long, for each number
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "grouped": {"n_kv_heads": 2},
    "windowed": {"window": WINDOW},
}
MEANING = {
    "full": "8 heads, each with keys and values of its own",
    "grouped": "8 heads that share the keys and values of 2",
    "windowed": f"each token sees the last {WINDOW}",
}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(TITLE, lambda: run(arguments), "interrupted")


def run(arguments: Sequence[str] | None) -> int:
    parser = Parser(prog=f"python -m demos {TITLE}", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--longest", type=count, default=LONGEST, metavar="N", help=f"the longest context (default: {LONGEST} tokens)"
    )
    longest = parser.parse_args(arguments).longest
    keep_freed_memory()
    lengths = [length for length in (64 * 2**i for i in range(30)) if length < longest] + [longest]
    print("one stream, 4 layers, d_model 128, rotary positions, float32; untrained, which takes as long\n")
    print(f"{'':10}{'context':>9}{'without cache':>18}{'with cache':>18}{'times':>8}{'bytes kept':>14}{'a token':>10}")
    for kind, choices in KINDS.items():
        model = GPT(
            GPTConfig(
                vocab_size=VOCAB_SIZE,
                max_len=longest + N_TIMED,
                n_layers=4,
                n_heads=8,
                d_model=128,
                positions="rotary",
                **choices,
            )
        )
        for length in lengths:
            ids = np.random.default_rng(0).integers(VOCAB_SIZE, size=(1, length))
            without = seconds_a_token(lambda model=model, ids=ids: model(ids))
            cache = model.new_cache()
            model.decode(ids, cache)
            kept = cache.nbytes
            within = seconds_a_token(lambda model=model, cache=cache, ids=ids: model.decode_step(ids[:, -1], cache))
            print(
                f"{kind:10}{length:>9,}{1 / without:>9,.0f} tokens/s{1 / within:>9,.0f} tokens/s{without / within:>7.0f}x"
                f"{kept:>14,}{kept / length:>10,.0f}",
                flush=True,
            )
    print()
    for kind, meaning in MEANING.items():
        print(f"{kind:10}{meaning}")
    print("\nWithout a cache nothing is kept, and every token costs a pass over all before it. Room is taken twice as much")
    print("at a time, so the bytes may have room for more tokens than there are; those of a window never grow.")
    return 0


def seconds_a_token(step: Callable[[], Any]) -> float:
    """The median of several, after one to warm up."""
    step()
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < N_TIMED - 1 and (not times or time.perf_counter() - started < SECONDS):
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
