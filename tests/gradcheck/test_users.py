"""Whoever comes with code of their own: plain NumPy, PyTorch, JAX, a C kernel, anything that takes arrays in its own way."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import gradcheck
from gradcheck.__main__ import main

ROOT = Path(__file__).parents[2]
TRUTHS = ["auto", "difference"]


def normal(*shape, seed=0, dtype=np.float64):
    return np.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def texts(report):
    return " ".join(finding.text for finding in report.findings)


# Plain NumPy.


def test_the_first_example_of_the_readme_through_the_command(tmp_path, capsys):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    section = page.partition("## To check a backward of your own")[2]
    program = re.search(r"```python\n(.*?)\nprint\(gradcheck[^\n]*\n```", section, re.DOTALL)[1]
    line = re.search(r"python -m gradcheck (softmax\.py:.*)", section)[1].split()
    (tmp_path / "softmax.py").write_text(program, encoding="utf-8")
    assert main([str(tmp_path / line[0]), *line[1:]]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("FAIL softmax: 15 entries")
    namespace = {}
    exec(program, namespace)
    assert printed == f"{gradcheck.check(namespace['softmax'], normal(3, 5))}\n"


# A library with arrays of its own. It takes neither complex numbers nor reversed views, and says so, as PyTorch does.


class Foreign:
    def __init__(self, array):
        if not isinstance(array, np.ndarray) or array.dtype not in (np.float32, np.float64):
            raise TypeError("no such dtype here")
        if any(stride < 0 for stride in array.strides):
            raise ValueError("negative strides are not supported")
        self.numbers = array.copy()


def log_softmax(x):
    shifted = x.numbers - x.numbers.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


RIGHT = {"right": lambda y, dy: dy - np.exp(y) * dy.sum(-1, keepdims=True)}
WRONG = {
    "the sum is left out": lambda y, dy: dy - np.exp(y) * dy,
    "the sum is over another axis": lambda y, dy: dy - np.exp(y) * dy.sum(0, keepdims=True),
    "the exponential is left out": lambda y, dy: dy - y * dy.sum(-1, keepdims=True),
    "the sign is turned": lambda y, dy: np.exp(y) * dy.sum(-1, keepdims=True) - dy,
    "a thousandth too much": lambda y, dy: 1.001 * dy - np.exp(y) * dy.sum(-1, keepdims=True),
    "only the sign of dy is seen": lambda y, dy: np.sign(dy) - np.exp(y) * np.sign(dy).sum(-1, keepdims=True),
}


def foreign(rule):
    def op(x):
        y = log_softmax(Foreign(x.copy()))
        return y, lambda dy: rule(y, Foreign(dy.copy()).numbers).astype(y.dtype)

    return op


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
def test_a_library_that_refuses_complex_arrays_is_held_against_differences(shape, dtype, truth):
    report = gradcheck.check(foreign(RIGHT["right"]), normal(*shape, dtype=dtype), truth=truth)
    report.assert_ok()
    assert "difference" in report.against


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("mistake", WRONG)
def test_its_wrong_backwards_are_caught(mistake, truth):
    report = gradcheck.check(foreign(WRONG[mistake]), normal(3, 5), truth=truth)
    assert report.verdict == "fail"
    assert report.worst.argument == "x"
    assert report.worst.ratio > 1


def test_a_wrapper_that_lets_a_refusal_through_has_a_note():
    def op(x):
        y = log_softmax(Foreign(x))
        return y, lambda dy: RIGHT["right"](y, Foreign(dy).numbers)

    report = gradcheck.check(op, normal(3, 5))
    report.assert_ok()
    assert "refuses reversed arrays" in texts(report)


# PyTorch.


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="needs torch, which is not installed")


def torch_function(torch, factor=1.0, statistics=True):
    """RMS norm with a gamma."""

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, gamma):
            scale = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
            ctx.save_for_backward(x, gamma, scale)
            return x * scale * gamma

        @staticmethod
        def backward(ctx, dy):
            x, gamma, scale = ctx.saved_tensors
            dn = dy * gamma
            mean = (dn * x).mean(-1, keepdim=True) * x * scale.square() if statistics else 0
            return scale * (dn - mean), factor * (dy * x * scale).sum(0)

    return Norm.apply


def torch_op(torch, function, **settings):
    def op(x, gamma):
        inputs = [torch.tensor(each.copy(), requires_grad=True) for each in (x, gamma)]
        y = function(*inputs)

        def backward(dy):
            gradients = torch.autograd.grad(y, inputs, torch.tensor(dy.copy()), **{"retain_graph": True, **settings})
            return tuple(gradient.numpy() for gradient in gradients)

        return y.detach().numpy(), backward

    return op


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_right_function_of_pytorch_passes(torch, dtype, truth):
    op = torch_op(torch, torch_function(torch))
    gradcheck.check(op, normal(3, 5, dtype=dtype), normal(5, seed=1, dtype=dtype), truth=truth).assert_ok()


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize(("argument", "mistake"), [("gamma", {"factor": 1.001}), ("x", {"statistics": False})])
def test_a_wrong_function_of_pytorch_fails(torch, argument, mistake, truth):
    op = torch_op(torch, torch_function(torch, **mistake))
    report = gradcheck.check(op, normal(3, 5), normal(5, seed=1), truth=truth)
    assert report.verdict == "fail"
    assert report.worst.argument == argument


def test_a_function_of_pytorch_without_complex_numbers_is_held_against_differences(torch):
    def op(x):
        x = torch.tensor(x.copy(), requires_grad=True)
        y = torch.softmax(x, -1)
        return y.detach().numpy(), lambda dy: torch.autograd.grad(y, x, torch.tensor(dy.copy()), retain_graph=True)[
            0
        ].numpy()

    report = gradcheck.check(op, normal(3, 5))
    report.assert_ok()
    assert "difference" in report.against


def test_a_graph_of_pytorch_that_is_not_retained_is_named(torch):
    op = torch_op(torch, torch_function(torch), retain_graph=False)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        gradcheck.check(op, normal(3, 5), normal(5, seed=1))


# JAX.


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax", reason="needs jax, which is not installed")
    jax.config.update("jax_enable_x64", True)
    return jax


def jax_op(jax, factor=1.0):
    @jax.custom_vjp
    def log_sum_exp(x):
        return jax.scipy.special.logsumexp(x, -1)

    def backward_of(x, dy):
        return (factor * dy[..., None] * jax.nn.softmax(x),)

    log_sum_exp.defvjp(lambda x: (log_sum_exp(x), x), backward_of)

    def op(x):
        y, backward = jax.vjp(log_sum_exp, jax.numpy.array(x))
        return np.asarray(y), lambda dy: np.asarray(backward(jax.numpy.array(dy))[0])

    return op


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_right_function_of_jax_passes(jax, dtype, truth):
    gradcheck.check(jax_op(jax), normal(3, 5, dtype=dtype), truth=truth).assert_ok()


@pytest.mark.parametrize("truth", TRUTHS)
def test_a_wrong_function_of_jax_fails(jax, truth):
    report = gradcheck.check(jax_op(jax, factor=1.001), normal(3, 5), truth=truth)
    assert report.verdict == "fail"
    assert report.worst.ratio > 1


def test_jax_in_float32_alone_is_named(jax):
    jax.config.update("jax_enable_x64", False)
    report = gradcheck.check(jax_op(jax), normal(3, 5))
    assert report.verdict == "fail"
    assert "the gradient of x is float32, x is float64" in texts(report)


# C.

KERNEL = """
void forward(long n, const double *x, double *y) { for (long i = 0; i < n; i++) y[i] = x[i] / (1 + x[i] * x[i]); }
void backward(long n, const double *dy, const double *x, double *dx) {
    for (long i = 0; i < n; i++) { double q = 1 + x[i] * x[i]; dx[i] = dy[i] * (2 - q) / (q * q); }
}
void last_one_left_out(long n, const double *dy, const double *x, double *dx) { backward(n - 1, dy, x, dx); dx[n - 1] = 0; }
void through_float(long n, const double *dy, const double *x, double *dx) {
    for (long i = 0; i < n; i++) { float q = 1 + x[i] * x[i]; dx[i] = dy[i] * (2 - q) / (q * q); }
}
void float_forward(long n, const double *x, double *y) { for (long i = 0; i < n; i++) y[i] = (float)x[i] * (float)x[i]; }
void float_backward(long n, const double *dy, const double *x, double *dx) {
    for (long i = 0; i < n; i++) dx[i] = 2 * (float)dy[i] * (float)x[i];
}
void overwriting(long n, double *dy, const double *x, double *dx) { backward(n, dy, x, dx); if (n) dy[0] = 0; }
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    if not shutil.which("cc"):
        pytest.skip("needs cc, which is not installed")
    library = str(tmp_path_factory.mktemp("kernel") / "kernel.so")
    command = ["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=KERNEL, text=True, check=True)
    return ctypes.CDLL(library)


def refuse_complex(array):
    if array.dtype != np.float64:
        raise TypeError(f"the kernel is for float64, got {array.dtype}")
    return array


def called(function, *arrays, contiguous=np.ascontiguousarray):
    """What a kernel of some arrays of one size writes into the last."""
    result = np.full(arrays[0].shape, np.nan)
    kept = [contiguous(refuse_complex(array)) for array in arrays]
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*kept, result)]
    function(ctypes.c_long(result.size), *pointers)
    return result


def pair(kernel, name, forward_name="forward", contiguous=np.ascontiguousarray):
    def forward(x):
        return called(kernel[forward_name], x, contiguous=contiguous)

    def backward(dy, x):
        return called(kernel[name], dy, x, contiguous=contiguous)

    return forward, backward


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5)])
def test_a_right_kernel_passes(kernel, shape, truth):
    report = gradcheck.check_pair(*pair(kernel, "backward"), normal(*shape), truth=truth)
    report.assert_ok()
    assert "difference" in report.against


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("name", ["last_one_left_out", "through_float"])
def test_a_wrong_kernel_fails(kernel, name, truth):
    report = gradcheck.check_pair(*pair(kernel, name), normal(3, 5), truth=truth)
    assert report.verdict == "fail"
    assert report.worst.ratio > 1
    if name == "last_one_left_out":
        assert report.worst.index == (2, 4)


def test_a_kernel_with_float32_inside_needs_a_tolerance(kernel):
    functions = pair(kernel, "float_backward", "float_forward")
    report = gradcheck.check_pair(*functions, normal(3, 5))
    assert report.verdict == "inconclusive"
    assert "would not be seen" in texts(report)
    gradcheck.check_pair(*functions, normal(3, 5), rtol=1e-4).assert_ok()


def test_a_kernel_whose_sums_change_their_order_needs_a_tolerance():
    rng = np.random.default_rng(0)

    def rounded(array):
        return refuse_complex(array) * (1 + 1e-9 * rng.normal(size=array.shape))

    def op(x):
        return rounded(x * x), lambda dy: rounded(2 * x * dy)

    report = gradcheck.check(op, normal(3, 5), rtol=1e-4)
    assert report.verdict == "fail"
    assert "of a second forward with the same arrays differs" in texts(report)
    gradcheck.check(op, normal(3, 5), rtol=1e-4, repeat_rtol=1e-7).assert_ok()


def test_a_kernel_that_overwrites_dy_is_caught_where_the_wrapper_makes_no_copy(kernel):
    report = gradcheck.check_pair(*pair(kernel, "overwriting"), normal(3, 5))
    assert report.verdict == "fail"
    assert "overwrites dy" in texts(report)


def test_a_wrapper_that_takes_every_array_for_contiguous_is_caught(kernel):
    report = gradcheck.check_pair(*pair(kernel, "backward", contiguous=lambda array: array), normal(3, 5))
    assert report.verdict == "fail"
    assert "differs on column-major arrays" in texts(report)
