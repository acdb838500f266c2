"""What is checked, brought into one form: a function of its floating arrays that returns outputs and a backward.

An operation, a pair of functions and a layer differ only in where their arrays go in and their gradients come out.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Outputs: TypeAlias = tuple[Array, ...]
Backward: TypeAlias = Callable[..., tuple[Any, ...]]
Run: TypeAlias = Callable[[Sequence[Array]], tuple[Outputs, Any]]  # Any: the backward
Slot: TypeAlias = int | str  # an argument by position, or by keyword


@dataclass(frozen=True)
class Subject:
    """`run(arrays)` takes arrays in place of the original ones, and returns the floating outputs and a backward from one
    cotangent an output to one gradient an array.

    `constants` are the integer and boolean arrays by name, which every run is given as they are; `others` says of every
    argument that is no floating array what it is, and `unseen` of those that hold floating numbers nevertheless. Where
    `parameters` is given, the last arrays are theirs; backward(dys, from_zero=False) adds to what `.grad` holds.
    """

    title: str
    names: tuple[str, ...]
    slots: tuple[Slot, ...]
    arrays: tuple[Array, ...]
    run: Callable[[Sequence[Array]], tuple[Outputs, Backward]]
    constants: tuple[tuple[str, Array], ...] = ()
    parameters: tuple[Any, ...] = ()
    others: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


class GradientCountError(Exception):
    """The backward did not return one gradient for each floating array."""


class WrongGradientsError(Exception):
    """What the backward returned cannot be the gradients, whatever its numbers; `faults` says why."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class Layer(Protocol):
    forward: Callable[..., tuple[Any, Callable[..., Any]]]

    def parameters(self) -> Mapping[str, Any]: ...


def subject_of_op(
    op: Callable[..., tuple[Any, Callable[..., Any]]], args: Sequence[Any], options: dict[str, Any]
) -> Subject:
    if not callable(op):
        raise TypeError(f"what is checked must be a function, got {type(op).__name__}")
    names = argument_names(op, args, options)
    given: dict[Slot, Any] = dict(enumerate(args))
    given.update(options)
    arrays = {slot: given[slot] for slot in names if isinstance(given[slot], np.ndarray)}
    for slot, array in arrays.items():
        if array.dtype.kind == "c":
            raise TypeError(f"{names[slot]} is complex; what is checked are gradients of real arrays")
        if array.dtype.kind == "O" or isinstance(array, np.ma.MaskedArray | np.matrix):
            raise TypeError(f"{names[slot]} must be an ordinary array of numbers, got {kind_of(array)}")
    floating = [slot for slot, array in arrays.items() if array.dtype.kind == "f"]
    expected = [slot in floating for slot in arrays]

    def run(replacements: Sequence[Array]) -> tuple[Outputs, Backward]:
        call = {slot: fresh(value) for slot, value in given.items()}
        call.update(zip(floating, map(np.asarray, replacements), strict=True))  # arithmetic makes numbers of 0-d arrays
        keywords = {slot: value for slot, value in call.items() if isinstance(slot, str)}
        returned = op(*(call[i] for i in range(len(args))), **keywords)
        if not (isinstance(returned, tuple | list) and len(returned) == 2 and callable(returned[1])):
            raise TypeError(f"{title_of(op)} must return (y, backward), got {type(returned).__name__}")
        y, backward = returned
        return floating_outputs(y), lambda dys: one_per_array(backward(*dys), expected)

    return Subject(
        title=title_of(op),
        names=tuple(names[slot] for slot in floating),
        slots=tuple(floating),
        arrays=tuple(given[slot] for slot in floating),
        run=run,
        constants=tuple((names[slot], array) for slot, array in arrays.items() if slot not in floating),
        others=tuple(f"{names[slot]} is {kind_of(given[slot])}" for slot in names if slot not in floating),
        unseen=tuple(f"{names[slot]} is {kind_of(given[slot])}" for slot in names if holds_floating_numbers(given[slot])),
    )


def subject_of_pair(
    forward: Callable[..., Any], backward: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]
) -> Subject:
    def op(*args: Any, **options: Any) -> tuple[Any, Callable[..., Any]]:
        y = forward(*map(fresh, args), **{name: fresh(value) for name, value in options.items()})
        return y, lambda *dys: backward(*dys, *map(fresh, args), **{name: fresh(value) for name, value in options.items()})

    op.__name__ = title_of(forward)
    op.__signature__ = signature_of(forward)  # type: ignore[attr-defined]
    return subject_of_op(op, args, options)


def subject_of_layer(layer: Layer, args: Sequence[Any], options: dict[str, Any]) -> Subject:
    for name in ("forward", "parameters"):
        if not callable(getattr(layer, name, None)):
            raise TypeError(
                f"a layer must have the methods forward and parameters, and {type(layer).__name__} has no {name}"
            )
    inputs = subject_of_op(layer.forward, args, options)
    parameters: dict[str, Any] = {}
    given = layer.parameters()
    if not isinstance(given, Mapping):
        raise TypeError(f"parameters() must return a dict of parameters by name, got {type(given).__name__}")
    if any(parameter is not given[name] for name, parameter in layer.parameters().items()):
        raise TypeError("parameters() must return the layer's own parameters, got new objects at every call")
    for name, parameter in given.items():
        if not (hasattr(parameter, "value") and hasattr(parameter, "grad")):
            raise TypeError(f"the parameter {name} must have .value and .grad, got {type(parameter).__name__}")
        if not isinstance(parameter.value, np.ndarray):
            raise TypeError(f"the value of {name} must be an array, got {type(parameter.value).__name__}")
        if parameter.value.dtype.kind == "f" and not any(parameter is known for known in parameters.values()):
            parameters[name] = parameter
    n_inputs = len(inputs.arrays)

    def run(replacements: Sequence[Array]) -> tuple[Outputs, Backward]:
        values = [np.asarray(array) for array in replacements[n_inputs:]]
        for parameter, value in zip(parameters.values(), values, strict=True):
            parameter.value = value
        outputs, backward = inputs.run(replacements[:n_inputs])

        def backward_of_all(dys: Sequence[Array], from_zero: bool = True) -> tuple[Any, ...]:
            for parameter, value in zip(parameters.values(), values, strict=True):
                parameter.grad = np.zeros(value.shape, value.dtype) if from_zero else np.array(parameter.grad)
            gradients = backward(dys)
            return *gradients, *(parameter.grad for parameter in parameters.values())

        return outputs, backward_of_all

    return Subject(
        title=type(layer).__name__,
        names=(*inputs.names, *parameters),
        slots=(*inputs.slots, *parameters),
        arrays=(*inputs.arrays, *(parameter.value for parameter in parameters.values())),
        run=run,
        constants=inputs.constants,
        others=inputs.others,
        unseen=inputs.unseen,
        parameters=tuple(parameters.values()),
    )


@contextmanager
def parameters_put_back(parameters: Sequence[Any]) -> Iterator[None]:
    """Whatever happens inside, every parameter has its own `.value` and `.grad` afterwards."""
    kept = [(parameter, parameter.value, parameter.grad) for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.grad = np.zeros(parameter.value.shape, parameter.value.dtype)
        yield
    finally:
        for parameter, value, grad in kept:
            parameter.value, parameter.grad = value, grad


def holds_floating_numbers(value: Any) -> bool:
    """Without being an array, so that no gradient of it is checked."""
    if isinstance(value, Mapping):
        value = list(value.values())
    within = value if isinstance(value, list | tuple) else ()
    return isinstance(value, np.floating) or any(isinstance(each, np.ndarray) and each.dtype.kind == "f" for each in within)


def kind_of(value: Any) -> str:
    """In words, for an error."""
    if isinstance(value, np.ndarray) and type(value) is np.ndarray:
        return f"an array of {value.dtype}"
    return "None" if value is None else f"a {type(value).__name__}"


def title_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return None


def argument_names(function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> dict[Slot, str]:
    """The name of every argument that is given, in the order of the signature."""
    names: dict[Slot, str] = {}
    signature = signature_of(function)
    parameters = list(signature.parameters.values()) if signature else []
    several = inspect.Parameter.VAR_POSITIONAL
    for i in range(len(args)):
        own = parameters[min(i, len(parameters) - 1)] if parameters else None
        if own is not None and own.kind in (own.POSITIONAL_ONLY, own.POSITIONAL_OR_KEYWORD):
            names[i] = own.name
        else:
            first = next((place for place, each in enumerate(parameters) if each.kind == several), 0)
            names[i] = f"{parameters[first].name if parameters else 'arrays'}[{i - first}]"
    order = [parameter.name for parameter in parameters]
    for name in sorted(options, key=lambda name: order.index(name) if name in order else len(order)):
        names[name] = name
    return names


def fresh(value: Any) -> Any:
    """A Generator as it was given, so that every call draws the same; anything else itself."""
    return copy.deepcopy(value) if isinstance(value, np.random.Generator) else value


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def noted(probe: str) -> Iterator[None]:
    """An exception of the subject's own passes through as it is, with a note of the probe that caused it."""
    try:
        yield
    except Exception as error:
        notes = [*getattr(error, "__notes__", []), f"gradcheck: raised by {probe}"]
        error.__notes__ = notes  # type: ignore[attr-defined]  # what add_note does from Python 3.11 on
        raise


def floating_outputs(y: Any) -> Outputs:
    outputs = y if isinstance(y, tuple | list) else (y,)
    for output in outputs:
        if isinstance(output, tuple | list | dict | np.ma.MaskedArray):
            raise TypeError(f"the forward must return an array or a tuple of arrays, got a {type(output).__name__} in it")
    arrays = tuple(np.asarray(output) for output in outputs if isinstance(output, np.ndarray | np.generic | float | complex))
    floating = tuple(array for array in arrays if array.dtype.kind in "fc")
    if not floating:
        raise ValueError(f"the forward must return a floating array or a tuple with one, got {type(y).__name__}")
    return floating


def one_per_array(gradients: Any, expected: list[bool]) -> tuple[Any, ...]:
    """The gradients of the floating arrays; a None may stand in the place of any other array."""
    given = tuple(gradients) if isinstance(gradients, tuple | list) else (gradients,)
    if gradients is None and not any(expected):
        return ()
    if len(given) == sum(expected):
        return given
    if len(given) == len(expected) and all(g is None for g, wanted in zip(given, expected, strict=True) if not wanted):
        return tuple(g for g, wanted in zip(given, expected, strict=True) if wanted)
    raise GradientCountError(f"backward returned {len(given)} gradient(s) for {sum(expected)} floating array(s)")


def gradients_of(subject: Subject, backward: Backward, dys: Sequence[Array], arrays: Sequence[Array]) -> list[Array]:
    """Copies of the gradients, if there is one of the right shape and dtype for every array."""
    try:
        gradients = backward(dys)
    except GradientCountError as error:
        raise WrongGradientsError([str(error)]) from error
    faults = []
    gradients = tuple(np.float64(gradient) if isinstance(gradient, float) else gradient for gradient in gradients)
    for name, array, gradient in zip(subject.names, arrays, gradients, strict=True):
        if not isinstance(gradient, np.ndarray | np.generic) or isinstance(gradient, np.ma.MaskedArray | np.matrix):
            faults.append(f"the gradient of {name} is {kind_of(gradient)}, not an ordinary array")
        elif gradient.shape != array.shape:
            faults.append(f"the gradient of {name} has the shape {gradient.shape}, {name} has {array.shape}")
        elif gradient.dtype != array.dtype:
            faults.append(f"the gradient of {name} is {gradient.dtype}, {name} is {array.dtype}")
    if faults:
        raise WrongGradientsError(faults)
    return [np.array(gradient, order="C") for gradient in gradients]
