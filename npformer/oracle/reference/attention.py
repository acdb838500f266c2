"""Every query takes the average of the values that it sees, weighted by how well their keys match."""

from npformer.oracle.reference.attention_weights import attention_weights
from npformer.oracle.reference.dropout import dropout as drop
from npformer.oracle.reference.elementary import Number
from npformer.oracle.reference.may_attend import may_attend
from npformer.oracle.reference.nested import Nested, kind_of


def attention(
    query: Nested,
    key: Nested,
    value: Nested,
    *,
    keep: Nested = None,
    bias: Nested = None,
    causal: int | None = None,
    window: int | tuple[int, int] | None = None,
    scale: Number = None,
    softcap: Number = None,
    kept: Nested = None,
    dropout: Number = 0.0,
) -> Nested:
    """yᵢ = Σⱼ Pᵢⱼ vⱼ over the keys j that query i sees; if there are none, 0        Vaswani et al. 2017, equation 1

    query (B,H,T,K), key (B,G,S,K), value (B,G,S,any width) → y (B,H,T,that width). P is attention_weights, with dropout
    by the mask `kept` (B,H,T,S) if there is one. Where S = 0 a list cannot say the width, and the rows of y are empty.
    """
    number = kind_of(query)
    P = attention_weights(query, key, keep=keep, bias=bias, causal=causal, window=window, scale=scale, softcap=softcap)
    P = drop(P, dropout, kept)  # (B,H,T,S)

    def average(b: int, h: int, i: int) -> list[Number]:
        values = value[b][h // (len(query[b]) // len(value[b]))]  # (S,width)
        seen = [j for j in range(len(values)) if may_attend(b, h, i, j, keep=keep, bias=bias, causal=causal, window=window)]
        return [sum((P[b][h][i][j] * column[j] for j in seen), number(0)) for column in zip(*values, strict=True)]

    return [[[average(b, h, i) for i in range(len(rows))] for h, rows in enumerate(heads)] for b, heads in enumerate(query)]
