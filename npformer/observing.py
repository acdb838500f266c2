"""The one place where a model lets itself be watched, and does nothing where nobody watches.

with observed_by(observer):        each layer that is entered in this block, the weights of each attention and their
    model(ids)                     gradient, and what generation does with the rows, are told to the observer
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeAlias

from npformer.operation import Array, Backwards

Told: TypeAlias = Callable[[Array], None]


class Observer:
    """What can be watched; each method does nothing until it is replaced."""

    def enters(self, layer: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        """A layer's forward begins, with these arguments."""

    def leaves(self, layer: Any, y: Any) -> None:
        """It has ended; y is None where it raised."""

    def weighs(self, P: Array) -> tuple[Array, Told]:
        """The innermost layer attends with the weights P (B, H, T, S), those before dropout, 0 where a pair is hidden → the
        weights that it shall go on with, and what is called with ∂L/∂P at each backward."""
        return P, ignore

    def begins(self, caches: Any, memory: Array) -> None:
        """The caches, which hold nothing yet, will be read with this memory."""

    def moves(self, caches: Any, rows: Array) -> None:
        """Row i of the caches will be what row rows[i] is."""

    def forks(self, caches: Any, others: Any) -> None:
        """`others` hold what `caches` hold, from now on apart."""

    def rewinds(self, caches: Any, lengths: Array) -> None:
        """Of row i of the caches all is forgotten but the first lengths[i] tokens."""

    def reads(self, text: Any) -> None:
        """What this thread's model read last is the text, a GrowingText, as it is now."""

    def writes(self, text: Any, ids: Array) -> None:
        """Each row of the text goes on with one of `ids` (B,)."""

    def chooses(self, text: Any, rows: Array) -> None:
        """Row i of the text, which has no cache, will be what row rows[i] is."""

    def settles(self, model: Any, row: int, ids: Array) -> None:
        """A search for row `row` of a batch, which is what this thread's model read last, has found `ids` (T,), beginning
        and all."""


def ignore(gradient: Array) -> None:
    pass


OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar("OBSERVERS", default=())
UNSEEN: AbstractContextManager[Callable[[Any], Any]] = nullcontext(lambda y: y)


@contextmanager
def observed_by(observer: Observer, *, alone: bool = False) -> Iterator[None]:
    """`alone`: whoever watches already sees nothing of this block."""
    before = OBSERVERS.get()
    OBSERVERS.set((observer,) if alone else (*before, observer))
    try:
        yield
    finally:
        OBSERVERS.set(before if alone else without(observer, OBSERVERS.get()))


def without(observer: Observer, observers: tuple[Observer, ...]) -> tuple[Observer, ...]:
    """Blocks need not end in the order in which they began: the last that is this observer is taken out, and no other."""
    for i in reversed(range(len(observers))):
        if observers[i] is observer:
            return observers[:i] + observers[i + 1 :]
    return observers


def entered(layer: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> AbstractContextManager[Callable[[Any], Any]]:
    """Around a layer's forward, which calls what this gives with y."""
    observers = OBSERVERS.get()
    return seen(observers, layer, inputs, options) if observers else UNSEEN


@contextmanager
def seen(
    observers: tuple[Observer, ...], layer: Any, inputs: tuple[Any, ...], options: dict[str, Any]
) -> Iterator[Callable[[Any], Any]]:
    results: list[Any] = []
    told: list[Observer] = []
    try:
        for observer in observers:
            told.append(observer)
            observer.enters(layer, inputs, options)
        yield results.append
    finally:
        for observer in told:
            observer.leaves(layer, results[0] if results else None)


def offer(P: Array, weigh_backward: Backwards, shape: tuple[int, ...]) -> tuple[Array, Backwards]:
    """Attention's weights, any shape, which observers see as `shape` (B, H, T, S), and the backward that made them → the
    weights to go on with, and that backward, which tells their gradient on its way."""
    observers = OBSERVERS.get()
    if not observers:
        return P, weigh_backward
    weights, told = P.reshape(shape), []
    for observer in observers:
        weights, tell = observer.weighs(weights)
        told.append(tell)

    def backward(dP: Array) -> tuple[Array, ...]:
        for tell in told:
            tell(dP.reshape(shape))
        return weigh_backward(dP)

    return weights.reshape(P.shape), backward
