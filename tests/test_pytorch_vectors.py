"""npformer.functional against what PyTorch answered: values and gradients of every operation, in float64.

Questions and answers lie in vectors/pytorch.npz; vectors/make_pytorch_vectors.py made them and says how they are kept.
"""

import inspect
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from npformer import functional

RELATIVE = 1e-12  # of the largest entry of the expected array

# These return an array alone: they have no floating input, and so no gradient.
WITHOUT_BACKWARD = ("sinusoidal_positions", "alibi_slopes", "alibi_bias")


class Case(NamedTuple):
    operation: str
    options: dict[str, Any]
    given: dict[str, np.ndarray]
    outputs: list[np.ndarray]
    cotangents: list[np.ndarray]
    gradients: dict[str, np.ndarray]


def read_cases():
    with np.load(Path(__file__).parent / "vectors" / "pytorch.npz") as archive:
        return {name: read_case(name, archive[name]) for name in archive.files if name != "made_with"}


def read_case(name, record):
    options = json.loads(record["options"].item())
    options = {option: tuple(value) if isinstance(value, list) else value for option, value in options.items()}
    return Case(
        operation=name.split("/")[0],
        options=options,
        given=read_group(record, "given"),
        outputs=list(read_group(record, "output").values()),
        cotangents=list(read_group(record, "cotangent").values()),
        gradients=read_group(record, "gradient"),
    )


def read_group(record, group):
    """The arrays of one group by name, each a copy that nobody may write to."""
    if group not in record.dtype.names:
        return {}
    arrays = {name: np.array(record[group][name]) for name in record.dtype[group].names}
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


CASES = read_cases()


def with_generator(options):
    """A fresh generator in the place of its seed."""
    options = dict(options)
    if "rng_seed" in options:
        options["rng"] = np.random.default_rng(options.pop("rng_seed"))
    return options


def assert_close(actual, expected, what):
    """Same shape and dtype, the same infinities, and each other entry within RELATIVE of the largest expected one."""
    actual = np.asarray(actual)
    assert actual.shape == expected.shape, f"{what} has the shape {actual.shape}, PyTorch's has {expected.shape}"
    assert actual.dtype == expected.dtype, f"{what} is {actual.dtype}, PyTorch's is {expected.dtype}"
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite], err_msg=what)
    largest = np.abs(expected[finite]).max(initial=0)
    np.testing.assert_allclose(actual[finite], expected[finite], rtol=0, atol=RELATIVE * largest, err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_pytorch(name):
    case = CASES[name]
    result = getattr(functional, case.operation)(**case.given, **with_generator(case.options))
    if case.operation in WITHOUT_BACKWARD:
        assert_close(result, case.outputs[0], "the array")
        return

    y, backward = result
    outputs = y if isinstance(y, tuple) else (y,)
    assert len(outputs) == len(case.outputs)
    for i, (output, expected) in enumerate(zip(outputs, case.outputs, strict=True)):
        assert_close(output, expected, f"output {i}")

    gradients = backward(*case.cotangents)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    assert len(gradients) == len(case.gradients)
    for gradient, (argument, expected) in zip(gradients, case.gradients.items(), strict=True):
        assert_close(gradient, expected, f"the gradient of {argument}")


def test_every_operation_has_a_case():
    exported = {name for name in functional.__all__ if inspect.isfunction(getattr(functional, name))}
    assert exported == {case.operation for case in CASES.values()}


def test_every_option_of_every_operation_is_asked_about():
    for operation in {case.operation for case in CASES.values()}:
        cases = [case for case in CASES.values() if case.operation == operation]
        asked = {name for case in cases for name in (*case.given, *with_generator(case.options))}
        if operation == "attention_weights":
            asked |= {"dropout", "rng"}  # the weights are those before dropout
        assert asked == set(inspect.signature(getattr(functional, operation)).parameters), operation


def test_every_floating_argument_has_a_gradient():
    for name, case in CASES.items():
        floating = [argument for argument, array in case.given.items() if array.dtype == np.float64]
        assert list(case.gradients) == floating, name
        assert (case.operation in WITHOUT_BACKWARD) == (not floating), name


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([[1.0, -2.0, 3.0 + 1e-11]]),
        np.array([[1.0, 1e-11 - 2.0, 3.0]]),
        np.array([[1.0, -2.0, np.nan]]),
        np.array([[1.0, np.inf, 3.0]]),
        np.array([1.0, -2.0, 3.0]),
        np.array([[1.0], [-2.0], [3.0]]),
        np.array([[1.0, -2.0, 3.0]], np.float32),
    ],
)
def test_the_comparison_refuses_what_differs(wrong):
    expected = np.array([[1.0, -2.0, 3.0]])
    assert_close(expected.copy(), expected, "the same")
    with pytest.raises(AssertionError):
        assert_close(wrong, expected, "another")


def test_the_comparison_refuses_a_missing_infinity():
    expected = np.array([-np.inf, 1.0])
    assert_close(expected.copy(), expected, "the same")
    for wrong in ([np.inf, 1.0], [-1e308, 1.0], [np.nan, 1.0]):
        with pytest.raises(AssertionError):
            assert_close(np.array(wrong), expected, "another")
