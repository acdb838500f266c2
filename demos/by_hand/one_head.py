"""One attention head over four words, forward and backward, a step at a time."""

from collections.abc import Mapping, Sequence

import numpy as np

from demos.by_hand.head import Head, rows_of
from demos.by_hand.pairs import BAR, Pair, verdict
from demos.by_hand.quoting import quotation
from demos.by_hand.tables import beside, numbers, prose, table
from demos.by_hand.terminal import glossed
from npformer.functional import attention
from npformer.operation import Array

WORDS = {"我": "I", "喜欢": "like", "北京": "Beijing", "春天": "spring"}
QUERY = np.array([[1, 0], [2, -1], [0.5, 1], [-1, 2]])
KEY = np.array([[1, 1], [0, 2], [-1, 0], [2, -1]], float)
VALUE = np.array([[1, 0, 2], [0, 1, -1], [2, -1, 0], [-1, 2, 1]], float)
DY = np.array([[1, 0, -1], [0.5, 1, 0], [-1, 2, 1], [0, -2, 0.5]])


def walk(words: Sequence[str]) -> tuple[list[str], bool]:
    """The steps as text, with `words` for the names of WORDS, and whether all numbers agree."""
    head = Head(QUERY, KEY, VALUE, DY)
    s = head.scores(head.query, head.key)
    e, total, P = head.softmax(head.hidden(s))
    y = head.output(P, head.value)
    gradients, found = head.backward(), head.found()
    pairs = {name: Pair(name, gradients[name], found[name]) for name in gradients}
    apart = distance_from_one_call(head, y, gradients)

    def shown(title: str, array: Array, columns: Sequence[str] = (), rows: Sequence[str] = words) -> list[str]:
        return table(title, numbers(rows_of(array)), columns, rows)

    def step(title: str, text: str, formula: str, names: Sequence[str], tables: str) -> str:
        return "\n\n".join(
            [f"{title}\n{prose(text)}", f"    {formula}", quotation([head.lines[name] for name in names]), tables]
        )

    glossary = ", ".join(glossed(word, meaning) for word, meaning in zip(words, WORDS.values(), strict=True))
    (T, K), V = QUERY.shape, VALUE.shape[1]
    steps = [
        "\n".join(
            [
                "ONE ATTENTION HEAD, BY HAND\n",
                prose(
                    f"Four words: {glossary}. Each has three small vectors, which a model would get from the word by three "
                    "matrices, and which are made up here: a query, what it looks for; a key, what it is found by; a value, "
                    "what it has to say. The head gives each word a mean of the values, weighted by how well their keys "
                    "answer its query."
                ),
                "",
                beside(shown("query", QUERY), shown("key", KEY, rows=()), shown("value", VALUE, rows=())),
                "",
                prose(
                    f"Letters: row i is the word that asks, column j the word that is asked, T = {T} words; K = {K} numbers "
                    f"make a query or a key, V = {V} a value. npformer's arrays have two axes more, B texts by H heads: "
                    "here B = H = 1, and they are not shown; G and H // G, which lines name, are groups "
                    "of heads, 1 as well, and .sum(2) adds the heads of a group up. sum_visible(P, v, …) is the product "
                    "P @ v, to which no hidden pair adds anything. Under each formula stands the line of npformer that "
                    "computes it. It is read from the file now, and run, and the numbers are what came out."
                ),
            ]
        ),
        "FORWARD\n\n"
        + step(
            "1. Scale",
            "A score will be a sum of K products, and such sums grow like √K. Dividing by √K takes that out again; the "
            "first experiment at the end shows what happens otherwise. npformer scales the queries instead of the scores, "
            "which comes to the same.",
            f"q = query / √K        scale = 1/√{K} = {head.scale:.4f}",
            ["scale", "q"],
            beside(shown("q", head.scaled(head.query))),
        ),
        step(
            "2. Scores",
            "How well does key j answer query i? By their scalar product: multiply number by number, and add. (kᵀ is k with "
            "its rows as columns.)",
            "s_ij = Σ_c q_ic·k_jc        all at once: s = q kᵀ",
            ["s"],
            beside(shown("s", s, words)),
        ),
        step(
            "3. Mask",
            "A model that writes must not look at words still to come. Such a score becomes −∞, whose exponential is 0. "
            "npformer knows the pairs that remain as `visible`.",
            "s_ij = −∞ where j > i",
            ["hidden"],
            beside(shown("s, masked", head.hidden(s), words)),
        ),
        step(
            "4. Softmax",
            "Make the scores of a row positive by exp, and make them sum to 1. The row's largest score is taken off first: "
            "that changes no quotient, and exp cannot overflow. npformer calls what goes in x and what comes out y; here "
            "they are s and P, the weights. (blank marks rows in which all is hidden; here there are none.)",
            "P_ij = exp(s_ij) / Σ_k exp(s_ik)",
            ["top", "e", "total", "P"],
            beside(shown("e", e, words), shown("total", total, [""], rows=())) + "\n\n" + beside(shown("P", P, words)),
        ),
        step(
            "5. Weighted sum",
            f"Each word takes from every value as much as its weight says. {words[0]} sees itself alone and takes its own "
            "value whole. (m would be dropout's mask; without dropout it is 1.)",
            "y_i = Σ_j P_ij·v_j        all at once: y = P v",
            ["y"],
            beside(shown("y", y)),
        ),
        "BACKWARD\n\n"
        + "\n".join(
            [
                prose(
                    "Behind y stands one number L, the loss. Whoever uses y has found out how much L grows for each of its "
                    "entries, ∂L/∂y, and hands it over under the name dy; here it is made up. In the same way dP is short "
                    "for ∂L/∂P, an array of P's shape. Each step turns the gradient of what a line made into those of what "
                    "it used, from the last line to the first."
                ),
                "",
                beside(shown("dy", DY)),
                "",
                prose(
                    "Right of every | stands what gradcheck finds without a formula. It moves one entry by about 1e-30·i, "
                    "an imaginary number, runs the forward alone from there to L = Σ dy·y, and reads the derivative off the "
                    "imaginary part of L: L(x + ih) = L(x) + ih·L′(x) up to terms of h²."
                ),
            ]
        ),
        step(
            "6. Back through the weighted sum, to the values",
            "v_j went into every y_i with the factor P_ij, so what arrives at the y_i comes back with the same factors.",
            "dv_j = Σ_i P_ij·dy_i        all at once: dv = Pᵀ dy",
            ["dv"],
            pairs["dv"].shown(rows=words),
        ),
        step(
            "7. Back through the weighted sum, to the weights",
            "P_ij went into y_i with the factor v_j. That goes for hidden pairs as well; the next step will stop them.",
            "dP_ij = Σ_c dy_ic·v_jc        all at once: dP = dy vᵀ",
            ["dP"],
            pairs["dP"].shown(words, words),
        ),
        step(
            "8. Back through softmax and the mask",
            "A score moves its own weight, and through the sum all others of its row: ∂P_ij/∂s_ik = P_ij·([j = k] − P_ik), "
            "where [j = k] is 1 if j = k and else 0. Multiplied by dP_ij and summed over j, that is P times what is left of "
            "dP without its mean under the weights. Every row of ds sums to 0, and where P is 0, so is ds. (The line is "
            "softmax's own: its y is P, its dy is dP, its dx is ds.)",
            "ds_ij = P_ij·(dP_ij − Σ_k P_ik·dP_ik)",
            ["ds"],
            pairs["ds"].shown(words, words),
        ),
        step(
            "9. Back through scores and scale, to the queries",
            f"query_i went into s_ij with the factor scale·k_j. (The line says dq for the gradient of query, before the "
            f"scale.) {words[0]} gets 0: it sees itself alone, with weight 1 whatever it asks.",
            "dq_i = scale·Σ_j ds_ij·k_j        all at once: dq = scale·ds k",
            ["dq"],
            pairs["dq"].shown(rows=words),
        ),
        step(
            "10. Back through the scores, to the keys",
            "k_j went into s_ij with the factor q_i, in which the scale is already.",
            "dk_j = Σ_i ds_ij·q_i        all at once: dk = dsᵀ q",
            ["dk"],
            pairs["dk"].shown(rows=words),
        )
        + "\n\n"
        + verdict(list(pairs.values()))
        + "\n"
        + prose(
            "All of it in one call, y, backward = npformer.functional.attention(query, key, value, causal=True) and then "
            f"backward(dy), gives y, dq, dk and dv; from the steps above they differ by at most {apart:.2g}."
        ),
    ]
    return steps, all(pair.right for pair in pairs.values()) and apart <= BAR


def distance_from_one_call(head: Head, y: Array, gradients: Mapping[str, Array]) -> float:
    whole, backward = attention(head.query, head.key, head.value, causal=True)
    stepwise = [rows_of(y), *(gradients[name] for name in ("dq", "dk", "dv"))]
    return max(
        float(np.abs(mine - rows_of(theirs)).max())
        for mine, theirs in zip(stepwise, [whole, *backward(head.dy)], strict=True)
    )
