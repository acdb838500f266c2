"""How steeply each head's attention falls with distance."""

from npformer.oracle.reference.nested import Nested


def alibi_slopes(n_heads: int, number: type = float) -> Nested:
    """2^(−8/H), 2^(−16/H), … 2^(−8) for H a power of two        Press, Smith and Lewis 2022, section 3

    Another number of heads takes the slopes of the power of two below it, then every other one of the power above, as
    in the authors' code.
    """

    def geometric(n: int) -> Nested:
        return [number(2) ** (number(-8 * (h + 1)) / n) for h in range(n)]

    power_below = 1
    while 2 * power_below <= n_heads:
        power_below *= 2
    return geometric(power_below) + geometric(2 * power_below)[::2][: n_heads - power_below]  # (H)
