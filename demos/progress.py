"""How far a training run is: one line that is written over in a terminal, a plain line now and then anywhere else."""

import shutil
import sys
import time

from npformer.training import Step

N_LINES = 10  # where there is no terminal
SECONDS_BETWEEN = 0.2
N_SMOOTHED = 50  # steps whose losses are averaged


class Progress:
    """Called after every step; `close` ends the line."""

    def __init__(self, n_steps: int, tokens_a_step: int, n_done: int = 0) -> None:
        self.n_steps, self.tokens_a_step, self.n_before = n_steps, tokens_a_step, n_done
        self.steps: list[Step] = []  # all that were taken
        self.started = time.monotonic()
        self.shown = -SECONDS_BETWEEN
        self.width = 0
        self.in_place = sys.stdout is not None and sys.stdout.isatty()

    def __call__(self, step: Step) -> None:
        self.steps.append(step)
        now = time.monotonic() - self.started
        last = step.number == self.n_steps
        if self.in_place:
            if last or now - self.shown >= SECONDS_BETWEEN:
                self.shown = now
                line, room = self.line(step, now), shutil.get_terminal_size().columns - 1
                print(f"\r{line:<{self.width}}"[: room + 1], end="", flush=True)
                self.width = len(line)
        elif last or step.number % max(1, self.n_steps // N_LINES) == 0:
            print(self.line(step, now), flush=True)

    def line(self, step: Step, seconds: float) -> str:
        n_new = step.number - self.n_before
        losses = [each.loss for each in self.steps[-N_SMOOTHED:]]
        left = seconds / n_new * (self.n_steps - step.number)
        return (
            f"step {step.number:>{len(str(self.n_steps))}} of {self.n_steps}  "
            f"loss {sum(losses) / len(losses):.3f}  "
            f"{n_new * self.tokens_a_step / max(seconds, 1e-9):,.0f} tokens/s  {clock(left)} left"
        )

    def close(self) -> None:
        if self.in_place and self.width:
            print(flush=True)
            self.width = 0


def clock(seconds: float) -> str:
    """3:07, or 1:03:07 from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
