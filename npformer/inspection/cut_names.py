"""Names that are cut where there is no room for them, and stay different."""

from collections import Counter
from collections.abc import Callable


class CutNames:
    """Each name as `cut` leaves it, and the same name always the same; where another is left the same, it has a number.

    cut(name, number) makes a name that ends in `number`, which is "" for the first.
    """

    def __init__(self, cut: Callable[[str, str], str]) -> None:
        self.cut = cut
        self.found: dict[str, str] = {}
        self.taken: set[str] = set()
        self.count: Counter[str] = Counter()

    def __call__(self, name: str) -> str:
        if name not in self.found:
            short = plain = self.cut(name, "")
            self.count[plain] = max(1, self.count[plain])
            while short in self.taken:
                self.count[plain] += 1
                short = self.cut(name, str(self.count[plain]))
            self.taken.add(short)
            self.found[name] = short
        return self.found[name]
