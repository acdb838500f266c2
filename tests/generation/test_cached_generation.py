"""A cache changes nothing: on 1,000 pairs of a random model and a random prompt, in float64, token for token."""

import numpy as np
import pytest

from npformer.generation import beam_search, generate, log_probabilities
from npformer.models.encoder_decoder import EncoderDecoder, TransformerConfig
from npformer.models.gpt import GPT, GPTConfig
from toy_models import padded


def random_model(kind, seed):
    """Small, of any kind of layer, with weights so large that the models differ."""
    rng = np.random.default_rng(seed)
    sizes = {
        "vocab_size": int(rng.integers(3, 12)),
        "n_heads": 2,
        "d_model": int(rng.choice([4, 8])),
        "n_kv_heads": int(rng.integers(1, 3)),
        "d_ff": int(rng.integers(3, 8)),
        "activation": str(rng.choice(["relu", "gelu_tanh", "swiglu"])),
        "norm": str(rng.choice(["layer_norm", "rms_norm"])),
        "norm_placement": str(rng.choice(["pre", "post"])),
        "positions": str(rng.choice(["learned", "sinusoidal", "rotary", "alibi", "none"])),
        "tied": bool(rng.integers(2)),
        "bias": bool(rng.integers(2)),
    }
    if kind == "GPT":
        window = int(rng.integers(1, 7)) if rng.integers(2) else None
        config = GPTConfig(max_len=int(rng.integers(6, 12)), n_layers=int(rng.integers(1, 3)), window=window, **sizes)
        model = GPT(config, dtype=np.float64, seed=seed)
    else:
        layers = {"n_encoder_layers": 1, "n_decoder_layers": int(rng.integers(1, 3))}
        config = TransformerConfig(max_len=12, source_vocab_size=int(rng.integers(3, 12)), **layers, **sizes)
        model = EncoderDecoder(config, dtype=np.float64, seed=seed)
    for name, parameter in model.parameters().items():
        parameter.value[...] = (name.endswith("gamma") + 0.7 * rng.standard_normal(parameter.value.shape)).astype(np.float64)
    return model, rng


def random_prompts(model, rng, B):
    """As `generate` takes them: one time without padding, one time with."""
    V = model.config.vocab_size
    given = {"ids": rng.integers(0, V, (B, int(rng.integers(1, 5))))}
    if rng.integers(2):
        given["ids"], given["keep"] = padded([rng.integers(0, V, rng.integers(1, 6)) for _ in range(B)], 6, rng)
    if isinstance(model, EncoderDecoder):
        rows = [rng.integers(0, model.config.source_vocab_size, rng.integers(1, 6)) for _ in range(B)]
        given["source"], given["source_keep"] = padded(rows, 7, rng)
    return given


@pytest.mark.parametrize(("kind", "n_models"), [("GPT", 300), ("EncoderDecoder", 200)])
def test_cached_greedy_decoding_equals_uncached(kind, n_models):
    different = set()
    for seed in range(n_models):
        model, rng = random_model(kind, seed)
        given = random_prompts(model, rng, 2)
        options = {"n": 7, "temperature": 0, "probabilities": True, "end_id": 0 if seed % 4 == 0 else None}
        new, P = generate(model, **given, **options)
        plain, plain_P = generate(model, **given, **options, cached=False)
        np.testing.assert_array_equal(new, plain, f"seed {seed}")
        np.testing.assert_allclose(P, plain_P, rtol=1e-12, atol=1e-13, err_msg=f"seed {seed}")
        different |= {tuple(row) for row in new}
    assert len(different) > n_models / 2


@pytest.mark.parametrize("kind", ["GPT", "EncoderDecoder"])
def test_a_padded_prompt_is_continued_as_if_it_were_alone(kind):
    for seed in range(20):
        model, rng = random_model(kind, seed)
        given = random_prompts(model, rng, 3)
        keep = given.get("keep", np.ones(given["ids"].shape, bool))
        options = {"n": 6, "temperature": 0, "repetition_penalty": 1.3}
        new = generate(model, **given, **options)
        for r in range(3):
            source = {"source": given["source"][r][given["source_keep"][r]]} if kind == "EncoderDecoder" else {}
            np.testing.assert_array_equal(
                generate(model, given["ids"][r][keep[r]], **source, **options), new[r], f"seed {seed}"
            )


@pytest.mark.parametrize("kind", ["GPT", "EncoderDecoder"])
def test_what_beam_search_claims_is_confirmed_by_one_full_pass(kind):
    for seed in range(20):
        model, rng = random_model(kind, seed)
        given = random_prompts(model, rng, 2)
        keep = given.get("keep", np.ones(given["ids"].shape, bool))
        n = min(5, model.config.max_len - int(keep.sum(1).max()) + 1)
        constraints = {"end_id": 1, "min_length": 1, "repetition_penalty": 1.2}
        options = {"n_beams": 3, "n_best": 3, "length_penalty": 0.6, **constraints}
        for r, found in enumerate(beam_search(model, n=n, **given, **options)):
            row = {name: array[r] for name, array in given.items()}
            assert len(found) == 3
            for h in found:
                confirmed = log_probabilities(model, new=h.ids, **row, **constraints)
                np.testing.assert_allclose(h.log_probabilities, confirmed, rtol=1e-10, atol=1e-12, err_msg=f"seed {seed}")
                assert h.score == pytest.approx(confirmed.sum() / ((5 + len(h.ids)) / 6) ** 0.6, rel=1e-10)
