"""What a check found, for a person to read."""

from dataclasses import dataclass, field

from gradcheck.decision import Verdict, over

MOST_LINES = 20
LONGEST_LINE = 400


class GradientError(AssertionError):
    """A gradient is wrong, or could not be shown to be right; the text is the report's."""


@dataclass(frozen=True)
class Worst:
    """The entry with the largest error over its bar; where none is wrong, perhaps one of the directions of many entries."""

    argument: str
    index: tuple[int, ...]
    actual: float
    truth: float
    error: float
    bar: float
    direction: str = ""

    @property
    def ratio(self) -> float:
        """error / bar: above 1 is a failure."""
        return over(self.error, self.bar)

    def __str__(self) -> str:
        return (
            f"gradient of {self.argument}{place(self.index)}{self.direction}: returned {self.actual:.12g}, "
            f"truth {self.truth:.12g}, error {self.error:.2g} = {self.ratio:.2g} × bar {self.bar:.2g}"
        )


@dataclass(frozen=True)
class Finding:
    """One observation. `verdict` is what it makes of the whole check; "pass" marks a note."""

    verdict: Verdict
    text: str

    def __str__(self) -> str:
        return f"{'note' if self.verdict == 'pass' else self.verdict}: {self.text}"


@dataclass(frozen=True)
class Report:
    """The result of a check.

    verdict     "pass", "fail", or "inconclusive": nothing wrong was seen, but it could not have been seen
    worst       the worst entry of all gradients, or None where none could be compared
    error_bar   the bar of that entry
    power       the smallest error that would have been seen, relative to the largest entry of its gradient; infinite where
                none was compared
    findings    what else was seen, failures first
    diagnosis   what the fault seems to be, in sentences; empty where it is not plain
    against     what the entries were compared with
    sensitivity what would have shown, in words; where empty, `power` says it
    """

    title: str
    verdict: Verdict
    worst: Worst | None = None
    power: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    n_entries: int = 0
    n_evaluations: int = 0
    n_directions: int = 0  # along which the entries were compared; 0 where it was one by one
    diagnosis: list[str] = field(default_factory=list)
    against: str = "complex step"
    sensitivity: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict == "pass"

    @property
    def error_bar(self) -> float:
        return self.worst.bar if self.worst else float("nan")

    def assert_ok(self) -> None:
        """Raise GradientError with this report as its text unless the verdict is "pass"."""
        if not self.ok:
            raise GradientError(str(self))

    def __str__(self) -> str:
        if self.sensitivity:
            power = self.sensitivity
        elif not self.n_entries and self.power == 0:
            power = "nothing to compare"
        elif self.power < float("inf"):
            power = f"errors above {self.power:.1g} of a gradient's largest entry would show"
        else:
            power = "none could be compared" if self.worst is None else "no error would show"
        entries = f"{self.n_entries:,} entries" if self.n_directions else f"{self.n_entries} entries"
        along = f" along {self.n_directions} directions" if self.n_directions else ""
        evaluations = f", {self.n_evaluations} forward evaluations" if self.n_evaluations else ""
        lines = [
            f"{self.verdict.upper()} {one_line(self.title)}: {entries}{along} against {self.against}{evaluations}, {power}"
        ]
        if self.worst:
            lines.append(f"  worst  {one_line(str(self.worst))}")
        lines += [f"  diagnosis: {one_line(sentence)}" for sentence in self.diagnosis]
        lines += [f"  {one_line(str(finding))}" for finding in self.findings]
        if len(lines) > MOST_LINES:
            lines[MOST_LINES - 1 :] = [f"  … and {len(lines) - MOST_LINES + 1} more findings"]
        return "\n".join(lines)


def place(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else ""


def one_line(text: str) -> str:
    """A foreign error message may be long, and of many lines."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]} …"
