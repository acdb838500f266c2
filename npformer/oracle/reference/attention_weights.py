"""How much each query takes from each key."""

from npformer.oracle.reference.elementary import Number, sqrt, tanh
from npformer.oracle.reference.may_attend import may_attend
from npformer.oracle.reference.nested import Nested, at, kind_of
from npformer.oracle.reference.softmax import softmax


def attention_weights(
    query: Nested,
    key: Nested,
    *,
    keep: Nested = None,
    bias: Nested = None,
    causal: int | None = None,
    window: int | tuple[int, int] | None = None,
    scale: Number = None,
    softcap: Number = None,
) -> Nested:
    """Pᵢ = softmax of sᵢⱼ = (qᵢ·kⱼ) / √K over the keys j that query i sees        Vaswani et al. 2017, equation 1

    query (B,H,T,K), key (B,G,S,K) → P (B,H,T,S), before dropout. Query head h goes to key head h // (H/G). `scale`
    replaces 1/√K; `softcap` c makes c tanh(s/c) of s; then `bias` is added. A key not seen has no score, and weight 0.
    """
    number = kind_of(query)

    def weights(b: int, h: int, i: int) -> list[Number]:
        q, keys = query[b][h][i], key[b][h // (len(query[b]) // len(key[b]))]  # (K), (S,K)
        scores = {}
        for j, k in enumerate(keys):
            if may_attend(b, h, i, j, keep=keep, bias=bias, causal=causal, window=window):
                s = sum(q_d * k_d for q_d, k_d in zip(q, k, strict=True))
                s *= 1 / sqrt(number(len(q))) if scale is None else number(scale)
                if softcap is not None:
                    s = number(softcap) * tanh(s / number(softcap))
                scores[j] = s if bias is None else s + at(bias, b, h, i, j)
        seen = dict(zip(scores, softmax(list(scores.values())), strict=True))
        return [seen.get(j, number(0)) for j in range(len(keys))]

    return [[[weights(b, h, i) for i in range(len(rows))] for h, rows in enumerate(heads)] for b, heads in enumerate(query)]
