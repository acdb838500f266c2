"""Numbers as the demos take them on the command line."""

import argparse


def count(text: str) -> int:
    return count_from_0(text, low=1)


def count_from_0(text: str, low: int = 0) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}") from None
    if not low <= number < 2**31:
        raise argparse.ArgumentTypeError(f"must be in {low} … {2**31 - 1}, got {number}")
    return number
