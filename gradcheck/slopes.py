"""What is known of the derivative along a direction."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Slopes:
    """The derivative on the two sides of a point, each with its doubt; one number where the function is smooth."""

    left: float
    right: float
    doubt: float = 0.0

    def allow(self, slope: float, bar: float = 0.0) -> bool:
        """Is this slope, up to `bar`, one of the two or between them?"""
        bar += self.doubt
        return min(self.left, self.right) - bar <= slope <= max(self.left, self.right) + bar

    def scaled(self, factor: float) -> "Slopes":
        return Slopes(self.left * factor, self.right * factor, self.doubt * factor)

    @property
    def differ(self) -> bool:
        return self.left != self.right

    def nearest(self, slope: float) -> float:
        """Of the two and all between them, the one nearest to this slope."""
        return min(max(slope, min(self.left, self.right)), max(self.left, self.right))

    def __str__(self) -> str:
        return f"{self.left:.6g} … {self.right:.6g}" if self.differ else f"{self.left:.6g}"
