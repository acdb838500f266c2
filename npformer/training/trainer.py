"""Training: a batch, its gradient, a step; again, until done, interrupted, or no longer finite."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike

import numpy as np

from npformer.archive import read_archive, write_archive
from npformer.arguments import check_count, check_ids, check_integers, check_number, check_probability
from npformer.memory import keep_freed_memory
from npformer.models import GPT, Encoder, EncoderDecoder
from npformer.operation import Array
from npformer.text import CharacterTokenizer
from npformer.training.adamw import AdamW
from npformer.training.batches import Batches
from npformer.training.clipping import clip_by_norm
from npformer.training.flat import FlatParameters
from npformer.training.interruption import deferred_interrupt
from npformer.training.model_files import config_of, model_of
from npformer.training.not_finite import NotFiniteError, first_not_finite, place
from npformer.training.schedule import warmup_cosine


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained. ValueError or TypeError for what makes no sense.

    n_steps              updates in all
    batch_size           windows in each, of the model's context
    n_micro_batches      into how many parts each batch is cut, to need less memory; the gradient is the same
    learning_rate        at its peak, after n_warmup steps
    final_learning_rate  at the end of the cosine
    clip                 the longest gradient
    seed                 of the order of the windows and of dropout
    """

    n_steps: int = 2000
    batch_size: int = 12
    n_micro_batches: int = 1
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-4
    n_warmup: int = 100
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        title = "TrainingConfig"
        checked: dict[str, int | float] = {
            "n_steps": check_count(title, "n_steps", self.n_steps),
            "batch_size": check_count(title, "batch_size", self.batch_size),
            "n_micro_batches": check_count(title, "n_micro_batches", self.n_micro_batches, high=self.batch_size),
            "n_warmup": check_count(title, "n_warmup", self.n_warmup, low=0),
            "seed": check_count(title, "seed", self.seed, low=0, high=2**64),
        }
        for name in ("learning_rate", "eps", "clip"):
            checked[name] = check_number(title, name, getattr(self, name), low=0)
        for name in ("final_learning_rate", "weight_decay"):
            checked[name] = check_number(title, name, getattr(self, name))
            if checked[name] < 0:
                raise ValueError(f"{title}: {name} must not be negative, got {getattr(self, name)}")
        for name in ("beta1", "beta2"):
            checked[name] = check_probability(title, name, getattr(self, name))
        for name, number in checked.items():
            object.__setattr__(self, name, number)  # Python's own numbers, which a checkpoint's header can hold


@dataclass(frozen=True)
class Step:
    """What a step did: its number, from 1 on, the mean loss of its batch before it, the length of the gradient before
    clipping, and the learning rate."""

    number: int
    loss: float
    gradient_norm: float
    learning_rate: float


class Trainer:
    """A model in training on `tokens` (n,): its optimiser, its place in the data, its chance.

    The model's parameters become views of one vector (FlatParameters). `tokenizer` is kept in the checkpoints.
    """

    def __init__(
        self, model: GPT, tokens: Array, config: TrainingConfig, tokenizer: CharacterTokenizer | None = None
    ) -> None:
        if isinstance(model, EncoderDecoder | Encoder):
            raise TypeError(
                f"Trainer: model must be a GPT, got {type(model).__name__}; its loss, FlatParameters and AdamW make a loop, "
                "as in demos/cities/training.py"
            )
        check_ids("Trainer", "tokens", tokens, limit=model.config.vocab_size)
        if tokenizer is not None and tokenizer.vocab_size != model.config.vocab_size:
            raise ValueError(
                f"Trainer: tokenizer has {tokenizer.vocab_size} characters, but the model a vocab_size of "
                f"{model.config.vocab_size}"
            )
        keep_freed_memory()
        self.model, self.config, self.tokenizer = model, config, tokenizer
        self.batches = Batches(tokens, model.config.max_len, config.batch_size, config.seed)
        self.flat = FlatParameters(model.parameters())
        self.optimiser = AdamW(
            self.flat.values,
            self.flat.n_matrix,
            beta1=config.beta1,
            beta2=config.beta2,
            eps=config.eps,
            decay=config.weight_decay,
        )
        self.rng = np.random.default_rng([config.seed, 0, 2])  # for dropout
        self.n_done = 0

    def step(self) -> Step:
        """One update. NotFiniteError where the loss or a gradient is not finite, before anything is changed, and where a
        parameter no longer is."""
        config, n = self.config, self.n_done
        ids, targets = self.batches.batch(n)
        chance = self.rng.bit_generator.state
        try:
            loss, norm = self.gradient(ids, targets)
            if not math.isfinite(loss) or not math.isfinite(norm):
                self.rng.bit_generator.state = chance
                found = first_not_finite(self.model, self.micro_batches(ids, targets), self.rng)
                raise NotFiniteError(f"step {n + 1}: not finite is {found}")
        except BaseException:  # an interrupt too: the step was not done, and may be begun again
            self.rng.bit_generator.state = chance
            raise
        learning_rate = warmup_cosine(
            n, peak=config.learning_rate, end=config.final_learning_rate, n_warmup=config.n_warmup, n_steps=config.n_steps
        )
        with np.errstate(all="ignore"):
            self.optimiser.step(self.flat.values, self.flat.gradients, learning_rate, n + 1)
            squares = np.dot(self.flat.values, self.flat.values)
        self.n_done += 1
        if not math.isfinite(squares):  # by one pass over the vector; they may also be large
            self.check_finite("the step's update", {name: part for name, (part, _) in self.flat.views.items()})
        return Step(n + 1, loss, norm, learning_rate)

    def gradient(self, ids: Array, targets: Array) -> tuple[float, float]:
        """Put the clipped gradient of the batch's mean loss into `flat.gradients`; the loss and the length before clipping.

        Totals and counts are added over the micro-batches, and the sum is divided once: a mean of means would weigh a
        target by how many others its micro-batch counts. ValueError where nothing is counted.
        """
        self.flat.check_views()
        self.flat.gradients[...] = 0
        loss, n_counted = 0.0, 0
        for part in self.micro_batches(ids, targets):
            (total, count), backward = self.model.loss(*part, self.rng)
            backward(np.ones((), total.dtype))
            loss, n_counted = loss + float(total), n_counted + count
        if n_counted == 0:
            raise ValueError("Trainer: no target of the batch is counted, so it has no mean loss")
        with np.errstate(all="ignore"):
            self.flat.gradients *= 1 / n_counted
        return loss / n_counted, clip_by_norm(self.flat.gradients, self.config.clip)

    def micro_batches(self, ids: Array, targets: Array) -> list[tuple[Array, Array]]:
        parts = np.array_split(np.arange(len(ids)), self.config.n_micro_batches)
        return [(ids[rows], targets[rows]) for rows in parts]

    def run(
        self,
        path: str | PathLike[str] | None = None,
        *,
        every: int = 100,
        report: Callable[[Step], None] = lambda step: None,
    ) -> bool:
        """Train to the last step, with a checkpoint in `path` at the start, after every so many steps and at the end.

        `report` is called after each step. True at the end; False where Ctrl-C came, after the step that it came in, and
        with a checkpoint of it. NotFiniteError leaves the last checkpoint as it is.
        """
        check_count("Trainer.run", "every", every)
        with deferred_interrupt() as interrupted:
            if path is not None:
                self.save(path)
            while self.n_done < self.config.n_steps and not interrupted():
                step = self.step()
                try:
                    report(step)
                except Exception:  # a terminal that went away, say: what was learnt is kept
                    if path is not None:
                        self.save(path)
                    raise
                if path is not None and (self.n_done % every == 0 or self.n_done == self.config.n_steps):
                    self.save(path)
            if path is not None and interrupted():
                self.save(path)
        return self.n_done >= self.config.n_steps

    # Checkpoints: what model.save writes, and with it all that the next step depends on.

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one .npz file, whole or not at all. NotFiniteError where a parameter is not finite, or one of
        its moments, which would make it so."""
        self.flat.check_views()
        vectors = {
            "weights": self.flat.values,
            "first_moment": self.optimiser.first_moment,
            "second_moment": self.optimiser.second_moment,
        }
        arrays = {f"{of}/{name}": part for of, vector in vectors.items() for name, part in self.flat.split(vector).items()}
        self.check_finite("no checkpoint was written", arrays)
        header = self.model.description(self.tokenizer) | {
            "training": asdict(self.config),
            "step": self.n_done,
            "position": self.n_done * self.config.batch_size,
            "rng": self.rng.bit_generator.state,
            "tokens": digest(self.batches.tokens),
        }
        write_archive(path, header, arrays)

    def check_finite(self, said: str, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise NotFiniteError(f"step {self.n_done}: not finite is {name}{place(array)} ({said})")

    @classmethod
    def resume(
        cls,
        path: str | PathLike[str],
        tokens: Array,
        tokenizer: CharacterTokenizer | None = None,
        n_steps: int | None = None,
    ) -> "Trainer":
        """The run that a checkpoint holds, to go on as if it had never stopped; with `n_steps`, to another end.

        ValueError where the file holds no run, or one on other tokens, or, where `tokenizer` is given, of other characters;
        and where `n_steps` are fewer than it has done.
        """
        check_integers("Trainer.resume", "tokens", tokens)
        header, arrays = read_archive(path)
        model, own_tokenizer = model_of(header, arrays, path)
        if not isinstance(model, GPT):
            raise ValueError(f"{path} holds the model {model.kind!r}; a Trainer goes on with 'gpt'")
        if "training" not in header:
            raise ValueError(f"{path} holds a model, but no training run to go on with")
        if "tokens" not in header:
            raise ValueError(f"{path} is damaged: it does not say on which text it was trained")
        if tokens.ndim != 1 or header["tokens"] != digest(tokens) or tokenizer not in (None, own_tokenizer):
            raise ValueError(f"{path} was trained on another text than the one given")
        try:
            config = config_of(TrainingConfig, header["training"])
            trainer = cls(model, tokens, config, own_tokenizer)
            trainer.n_done = check_count("Trainer", "step", header["step"], low=0)
            if header["position"] != trainer.n_done * config.batch_size:
                raise ValueError(f"step {trainer.n_done} is not at the position {header['position']}")
            trainer.rng.bit_generator.state = header["rng"]
            if trainer.rng.bit_generator.state != header["rng"]:  # NumPy rounds and masks what does not fit
                raise ValueError("rng is not a state of its generator")
            trainer.restore_moments(arrays)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path} is damaged: its training run is not whole ({error})") from error
        if n_steps is not None:
            trainer.config = replace(config, n_steps=check_count("Trainer.resume", "n_steps", n_steps))
            if n_steps < trainer.n_done:
                raise ValueError(f"Trainer.resume: n_steps must be at least {trainer.n_done}, which are done, got {n_steps}")
        return trainer

    def restore_moments(self, arrays: Mapping[str, Array]) -> None:
        moments = {"first_moment": self.optimiser.first_moment, "second_moment": self.optimiser.second_moment}
        parts = {f"{of}/{name}": part for of, vector in moments.items() for name, part in self.flat.split(vector).items()}
        unknown = [name for name in arrays if name not in parts and not name.startswith("weights/")]
        if unknown:
            raise ValueError(f"{unknown[0]} is unknown")
        for name, part in parts.items():
            given = arrays[name]
            if given.shape != part.shape or given.dtype != part.dtype:
                raise ValueError(f"{name} is {given.dtype} {given.shape}, not {part.dtype} {part.shape}")
            part[...] = given


def digest(tokens: Array) -> str:
    """A fingerprint of the tokens, whatever their dtype and layout."""
    return hashlib.sha256(np.ascontiguousarray(tokens, np.int64).tobytes()).hexdigest()
