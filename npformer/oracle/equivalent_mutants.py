"""The mutants that are no faults, each with the reason why it computes what the backward computes."""

CAPPED = "dv = SLOPE + 3 * SLOPE * CUBIC * np.minimum(square, 10000.0)"
REPEATED = "(0, 1) if bias.ndim == 2 else tuple((axis for axis, size in enumerate(bias.shape) if size == 1))"
NO_MEMORY = "what = 'needs a memory' if memory is None else 'has no cross-attention for a memory'"
RESULTS = "return tuple(results) if len(results) == 2 else results[0] if results else None"

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
        "TiedOutput",
        "self.bias.grad += dbias[0]",
        "self.bias.grad += dbias[-1]",
    ): "dbias has one entry, the first and the last",
    (
        "MultiHeadAttention",
        "raise ValueError(f'MultiHeadAttention: {owed}')",
        "raise f'MultiHeadAttention: {owed}'",
    ): "an error all the same, whose kind tests/models/test_cached.py reads: no gradient comes out of that call",
    (
        "DecoderLayer",
        NO_MEMORY,
        NO_MEMORY.replace("is None", "is not None"),
    ): "the words of an error, which tests/layers/test_bad_arguments.py reads: no backward comes out of that call",
    (
        "Stack",
        "return (features, layer_backwards[0])",
        "return (features, layer_backwards[-1])",
    ): "with a cache that has no backward each layer's refuses in the same words",
    (
        "Stack",
        "return (features, layer_backwards[0])",
        "return (features, layer_backwards[1])",
    ): "each layer's backward refuses in the same words; of one layer alone tests/models/test_one_token.py has models",
    (
        "Stack",
        RESULTS,
        RESULTS.replace("results[0]", "results[-1]"),
    ): "there is one result at most, the first and the last",
}
