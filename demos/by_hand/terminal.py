"""What the demo needs to know of a terminal: which characters it has, and when the reader goes on."""

import codecs
import sys
from collections.abc import Mapping

PLAIN = {
    "−": "-",
    "·": "*",
    "×": "x",
    "√": "sqrt ",
    "Σ": "sum",
    "∂": "d",
    "∞": "inf",
    "ᵀ": "^T",
    "²": "^2",
    "³": "^3",
    "′": "'",
    "→": "->",
    "≤": "<=",
    "…": "...",
    "½": "1/2",
    "γ": "gamma",
    "β": "beta",
    "ε": "eps",
    "σ": "sigma",
    "θ": "theta",
    "π": "pi",
    "Φ": "Phi",
    "φ": "phi",
}


def plain_where_needed() -> None:
    """A console that lacks a sign of the formulas is shown letters for it, and a question mark for what has none."""
    codecs.register_error(
        "plain", lambda error: ("".join(PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end)
    )
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="plain")


def printable(words: Mapping[str, str]) -> list[str]:
    """The words, or what they mean where the console lacks their characters: question marks would all look alike."""
    try:
        "".join(words).encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return list(words.values())
    return list(words)


def glossed(text: str, meaning: str) -> str:
    return text if text.isascii() else f"{text} ({meaning})"


def goes_on() -> bool:
    """Wait for a line: False for one that begins with q, and at the end of the input."""
    print("Enter goes on, q ends: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return bool(answer) and not answer.strip().lower().startswith("q")
