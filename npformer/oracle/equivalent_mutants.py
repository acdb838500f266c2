"""The mutants that are no faults, each with the reason why it computes what the backward computes."""

CAPPED = "dv = SLOPE + 3 * SLOPE * CUBIC * np.minimum(square, 10000.0)"
REPEATED = "(0, 1) if bias.ndim == 2 else tuple((axis for axis, size in enumerate(bias.shape) if size == 1))"

# (operation, the statement as it stands, the statement as it is changed): the reason
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "gelu_tanh",
        CAPPED,
        CAPPED.replace("square, 10000.0", "10000.0, square"),
    ): "the smaller of two numbers is the same in either order",
    (
        "gelu_tanh",
        CAPPED,
        CAPPED.replace("10000.0", "10010.0"),
    ): "dv is multiplied by y·σ(−v), and beyond |x| = 100 either σ(−v) or y = x·σ(v) is exactly 0",
    (
        "softmax",
        "dy = np.where(blank, 0, dy)",
        "dy = np.where(blank, 0.001, dy)",
    ): "in a blank row y is 0, and so is its product with whatever finite number stands for dy",
    (
        "attention_weights",
        f"repeated = {REPEATED}",
        f"repeated = {REPEATED.replace('(0, 1)', '(1, 0)', 1)}",
    ): "a sum over two axes is the same in either order",
    (
        "Linear",
        "self.bias.grad += dbias[0]",
        "self.bias.grad += dbias[-1]",
    ): "dbias has one entry, the first and the last",
    (
        "LearnedPositions",
        "dtable[:T] = dy.sum(0)",
        "dtable[:T] = dy.sum(0, keepdims=True)",
    ): "(1,T,D) is assigned to (T,D) like (T,D): NumPy leaves out leading axes of size 1",
}
