"""check_pair and check_layer: the same proof for two functions, and for a layer with parameters."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from gradcheck import check_layer, check_pair


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


# Two functions.


def forward(x, W, b):
    return x @ W + b


def backward(dy, x, W, b):
    return dy @ W.T, x.T @ dy, dy.sum(0)


ARRAYS = normal(3, 5), normal(5, 2), normal(2)


def test_a_right_pair_passes():
    report = check_pair(forward, backward, *ARRAYS)
    assert report.ok, report
    assert report.title == "forward"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda dy, x, W, b: (dy @ W.T, x.T @ dy, dy.mean(0)),
        lambda dy, x, W, b: (dy @ W.T, x.T @ dy),
        lambda dy, x, W, b: (dy @ W.T, dy.sum(0), x.T @ dy),
        lambda dy, x, W, b: (dy @ W.T, x.T @ (dy * dy), dy.sum(0)),
        lambda dy, x, W, b: None,
    ],
    ids=["mean", "count", "swapped", "squares dy", "None"],
)
def test_a_wrong_pair_fails(wrong):
    assert check_pair(forward, wrong, *ARRAYS).verdict == "fail"


def test_the_order_of_the_arguments_got_wrong_says_so_itself():
    with pytest.raises(ValueError, match="matmul"):
        check_pair(forward, lambda x, W, b, dy: (dy @ W.T, x.T @ dy, dy.sum(0)), *ARRAYS)


def test_a_wrong_pair_names_the_argument():
    report = check_pair(forward, lambda dy, x, W, b: (dy @ W.T, 2 * x.T @ dy, dy.sum(0)), *ARRAYS)
    assert report.worst.argument == "W"


def test_a_pair_is_given_the_options():
    def power(x, n=2, *, offset):
        return x**n + offset

    def slope(dy, x, n=2, *, offset):
        return n * x ** (n - 1) * dy, dy.sum()

    report = check_pair(power, slope, normal(5), n=3, offset=np.array(0.5))
    assert report.ok, report
    assert (
        check_pair(power, lambda dy, x, n, *, offset: (2 * x * dy, dy.sum()), normal(5), n=3, offset=np.array(0.5)).verdict
        == "fail"
    )


def test_the_cotangents_of_several_outputs_come_first():
    def both(x):
        return x * x, np.sin(x)

    assert check_pair(both, lambda da, db, x: 2 * x * da + np.cos(x) * db, normal(5)).ok
    assert check_pair(both, lambda db, da, x: 2 * x * da + np.cos(x) * db, normal(5)).verdict == "fail"


def test_the_backward_is_given_the_generator_as_the_forward_was():
    def mask(x, rng):
        return (rng.random(x.shape) > 0.5) * 2

    rng = np.random.default_rng(1)
    state = rng.bit_generator.state
    report = check_pair(lambda x, rng: x * mask(x, rng), lambda dy, x, rng: dy * mask(dy, rng), normal(5, 7), rng=rng)
    assert report.ok, report
    assert rng.bit_generator.state == state


def test_a_pair_with_integers_and_without_a_signature():
    class Rows:
        __signature__ = "unknown"

        def __call__(self, ids, table):
            return table[ids]

    def rows_backward(dy, ids, table):
        dtable = np.zeros_like(table)
        np.add.at(dtable, ids, dy)
        return None, dtable

    assert check_pair(Rows(), rows_backward, np.array([1, 0, 1]), normal(4, 3)).ok


def test_stopped_entries_of_a_pair():
    stopped = np.zeros((3, 5), bool)
    stopped[0] = True

    def wrong(dy, x, W, b):
        dx, dW, db = backward(dy, x, W, b)
        return np.where(stopped, 0, dx), dW, db

    assert check_pair(forward, wrong, *ARRAYS, stopped={"x": stopped}).ok
    assert check_pair(forward, wrong, *ARRAYS).verdict == "fail"
    assert check_pair(forward, backward, *ARRAYS, stopped={0: stopped}).verdict == "fail"


# Layers, written here without any other package.


@dataclass(eq=False)
class Parameter:
    value: np.ndarray
    grad: np.ndarray | None = None


@dataclass
class Linear:
    weight: Parameter
    bias: Parameter

    def parameters(self):
        return {"weight": self.weight, "bias": self.bias}

    def forward(self, x):
        W = self.weight.value

        def backward(dy):
            self.weight.grad += x.T @ dy
            self.bias.grad += dy.sum(0)
            return dy @ W.T

        return x @ W + self.bias.value, backward


@dataclass
class Sequential:
    layers: dict = field(default_factory=dict)

    def parameters(self):
        return {f"{name}.{own}": each for name, layer in self.layers.items() for own, each in layer.parameters().items()}

    def forward(self, x):
        backwards = []
        for layer in self.layers.values():
            x, backward = layer.forward(x)
            backwards.append(backward)

        def backward_of_all(dy):
            for backward in reversed(backwards):
                dy = backward(dy)
            return dy

        return x, backward_of_all


def linear(d_in=5, d_out=2, dtype=np.float64, layer=Linear):
    rng = np.random.default_rng(1)
    weight, bias = rng.normal(size=(d_in, d_out)).astype(dtype), rng.normal(size=d_out).astype(dtype)
    return layer(Parameter(weight, np.full_like(weight, 7)), Parameter(bias, np.full_like(bias, 8)))


def kept(layer):
    return [
        (p, p.value, p.value.tobytes(), p.grad, None if p.grad is None else p.grad.tobytes())
        for p in layer.parameters().values()
    ]


def put_back(layer, before):
    return all(
        p.value is value
        and value.tobytes() == contents
        and p.grad is grad
        and (grad is None or grad.tobytes() == grad_contents)
        for p, value, contents, grad, grad_contents in before
    )


def test_a_right_layer_passes_and_is_as_it_was():
    layer = linear()
    before = kept(layer)
    report = check_layer(layer, normal(3, 5))
    assert report.ok, report
    assert report.title == "Linear"
    assert report.n_entries == 15 + 10 + 2
    assert put_back(layer, before)


def test_a_layer_whose_grad_is_none():
    layer = linear()
    layer.weight.grad = layer.bias.grad = None
    assert check_layer(layer, normal(3, 5)).ok
    assert layer.weight.grad is None and layer.bias.grad is None


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_layer_of_low_precision(dtype):
    layer = linear(dtype=dtype)
    before = kept(layer)
    report = check_layer(layer, normal(3, 5).astype(dtype))
    assert report.ok, report
    assert put_back(layer, before)


def test_layers_in_layers():
    layer = Sequential({"first": linear(5, 7), "second": linear(7, 2)})
    report = check_layer(layer, normal(3, 5))
    assert report.ok, report
    assert report.n_entries == 15 + 35 + 7 + 14 + 2


def changed(name, change):
    """A Linear whose backward changes the gradient of one parameter."""

    class Changed(Linear):
        def forward(self, x):
            y, backward = super().forward(x)

            def changed_backward(dy):
                parameter = self.parameters()[name]
                before = parameter.grad.copy()
                dx = backward(dy)
                change(parameter, before, parameter.grad - before)
                return dx

            return y, changed_backward

    return Changed


def set_grad(grad):
    def change(parameter, before, gradient):
        parameter.grad = grad(before, gradient)

    return change


WRONG = {
    "assigned": set_grad(lambda before, gradient: gradient),
    "subtracted": set_grad(lambda before, gradient: before - gradient),
    "doubled": set_grad(lambda before, gradient: before + 2 * gradient),
    "nothing": set_grad(lambda before, gradient: before),
    "added to a fraction": set_grad(lambda before, gradient: 0.9 * before + gradient),
    "None": set_grad(lambda before, gradient: None),
    "shape": set_grad(lambda before, gradient: gradient[:1]),
    "float32": set_grad(lambda before, gradient: (before + gradient).astype(np.float32)),
    "NaN": set_grad(lambda before, gradient: before * np.nan),
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_wrong_gradient_of_a_parameter_fails_and_is_named(name, fault):
    layer = Sequential({"first": linear(5, 7), "second": linear(7, 2, layer=changed(name, WRONG[fault]))})
    before = kept(layer)
    report = check_layer(layer, normal(3, 5))
    assert report.verdict == "fail", report
    assert f"second.{name}" in str(report)
    assert not any("first" in finding.text for finding in report.findings)
    assert put_back(layer, before)


def test_assigning_is_called_by_its_name():
    report = check_layer(linear(layer=changed("weight", WRONG["assigned"])), normal(3, 5))
    assert "the gradient of weight is not added to what its .grad held" in str(report)


def test_a_wrong_gradient_of_the_input_of_a_layer_fails():
    class Wrong(Linear):
        def forward(self, x):
            y, backward = super().forward(x)
            return y, lambda dy: 1.01 * backward(dy)

    report = check_layer(linear(layer=Wrong), normal(3, 5))
    assert report.verdict == "fail"
    assert report.worst.argument == "x"


@pytest.mark.parametrize("what", ["value", "dy", "x"])
def test_a_layer_that_overwrites_fails(what):
    class Overwrites(Linear):
        def forward(self, x):
            own = x.copy()
            y, backward = super().forward(own)

            def overwriting(dy):
                dx = backward(dy)
                {"value": self.weight.value, "dy": dy, "x": x}[what][...] *= 2
                return dx

            return y, overwriting

    layer = linear(layer=Overwrites)
    before = kept(layer)
    x = normal(3, 5)
    report = check_layer(layer, x)
    assert report.verdict == "fail", report
    assert put_back(layer, before)
    assert np.array_equal(x, normal(3, 5))


def test_a_layer_that_keeps_its_input_on_itself_fails():
    class Keeps(Linear):
        def forward(self, x):
            self.x = x

            def backward(dy):
                self.weight.grad += self.x.T @ dy
                self.bias.grad += dy.sum(0)
                return dy @ self.weight.value.T

            return x @ self.weight.value + self.bias.value, backward

    report = check_layer(linear(layer=Keeps), normal(3, 5))
    assert report.verdict == "fail"
    assert "the gradient of weight is stale" in str(report)


def test_a_layer_that_reads_its_values_late_passes():
    """Between a forward and its backward nobody changes the values of the same layer."""

    class Late(Linear):
        def forward(self, x):
            y, backward = super().forward(x)

            def late(dy):
                backward(dy)
                return dy @ self.weight.value.T

            return y, late

    report = check_layer(linear(layer=Late), normal(3, 5))
    assert report.ok, report


@dataclass
class Tied:
    """The same parameter under two names: the gradient is the sum over both uses."""

    table: Parameter
    wrong: bool = False

    def parameters(self):
        return {"embedding.weight": self.table, "head.weight": self.table}

    def forward(self, ids):
        table = self.table.value
        h = table[ids]

        def backward(dy):
            dh = dy @ table
            if not self.wrong:
                self.table.grad += dy.T @ h
            np.add.at(self.table.grad, ids, dh)

        return h @ table.T, backward


def test_a_parameter_under_two_names_is_counted_once():
    ids, table = np.array([2, 0, 2]), normal(4, 3)
    layer = Tied(Parameter(table, np.zeros((4, 3))))
    before = kept(layer)
    report = check_layer(layer, ids)
    assert report.ok, report
    assert report.n_entries == 12
    assert "head.weight" not in str(report)
    wrong = check_layer(Tied(Parameter(table, np.zeros((4, 3))), wrong=True), ids)
    assert wrong.verdict == "fail"
    assert wrong.worst.argument == "embedding.weight"
    assert put_back(layer, before)


@pytest.mark.parametrize("returned", [None, (), (None,)])
def test_a_layer_without_differentiable_inputs(returned):
    class Rows(Tied):
        def forward(self, ids):
            y, backward = super().forward(ids)

            def without_gradients(dy):
                backward(dy)
                return returned

            return y, without_gradients

    assert check_layer(Rows(Parameter(normal(4, 3))), np.array([2, 0, 2])).ok


def test_a_layer_without_any_argument():
    class Constant(Tied):
        def forward(self):
            def backward(dy):
                self.table.grad += 2 * self.table.value * dy

            return self.table.value**2, backward

    assert check_layer(Constant(Parameter(normal(4, 3)))).ok


def test_a_layer_without_parameters_is_an_operation():
    class Square:
        def parameters(self):
            return {}

        def forward(self, x):
            return x * x, lambda dy: 2 * x * dy

    assert check_layer(Square(), normal(5)).ok
    with pytest.raises(ValueError, match="Square has no differentiable input"):
        check_layer(Square(), np.array([1, 2]))


def test_integer_parameters_have_no_gradient():
    class Picks(Linear):
        ids = Parameter(np.array([1, 2]))

        def parameters(self):
            return {**super().parameters(), "ids": self.ids}

    report = check_layer(linear(layer=Picks), normal(3, 5))
    assert report.ok, report


def test_parameters_that_are_made_anew_at_every_call_are_refused():
    """Their gradients would be looked for where none ever arrive."""

    class Forgetful(Linear):
        def parameters(self):
            return {name: Parameter(parameter.value) for name, parameter in super().parameters().items()}

    with pytest.raises(TypeError, match="the layer's own parameters"):
        check_layer(linear(layer=Forgetful), normal(3, 5))


@pytest.mark.parametrize("value", [1.5, None, [1.0, 2.0]])
def test_the_value_of_a_parameter_must_be_an_array(value):
    layer = linear()
    layer.bias.value = value
    with pytest.raises(TypeError, match="the value of bias must be an array"):
        check_layer(layer, normal(3, 5))
    assert layer.bias.value is value


def test_stopped_entries_of_a_parameter():
    stopped = np.zeros((5, 2), bool)
    stopped[:, 0] = True

    class Frozen(Linear):
        def forward(self, x):
            y, backward = super().forward(x)

            def frozen(dy):
                before = self.weight.grad.copy()
                dx = backward(dy)
                self.weight.grad[stopped] = before[stopped]
                return dx

            return y, frozen

    assert check_layer(linear(layer=Frozen), normal(3, 5), stopped={"weight": stopped}).ok
    assert check_layer(linear(layer=Frozen), normal(3, 5)).verdict == "fail"
    assert check_layer(linear(), normal(3, 5), stopped={"weight": stopped}).verdict == "fail"


def test_the_options_of_a_layer():
    class Dropout(Linear):
        def forward(self, x, *, rng, scale=1.0):
            mask = scale * (rng.random(x.shape) > 0.3)
            y, backward = super().forward(x * mask)
            return y, lambda dy: backward(dy) * mask

    rng = np.random.default_rng(2)
    assert check_layer(linear(layer=Dropout), normal(3, 5), rng=rng, scale=1.5).ok
    assert rng.random() == np.random.default_rng(2).random()


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("call", [1, 2, 5, 20, 45, 90])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_whatever_happens_the_layer_is_as_it_was(exception, call, where):
    calls = {"forward": 0, "backward": 0}

    def interrupt(place):
        calls[place] += 1
        if place == where and calls[place] == call:
            raise exception

    class Interrupted(Linear):
        def forward(self, x):
            interrupt("forward")
            y, backward = super().forward(x)

            def interrupted(dy):
                dx = backward(dy)
                interrupt("backward")
                return dx

            return y, interrupted

    layer = linear(layer=Interrupted)
    before = kept(layer)
    try:
        report = check_layer(layer, normal(3, 5))
    except exception:
        pass
    else:
        assert calls[where] < call or where == "forward" or report.verdict == "fail"
    assert put_back(layer, before)


def test_a_bad_argument_leaves_the_layer_as_it_was():
    layer = linear()
    before = kept(layer)
    with pytest.raises(ValueError, match="stopped names 'gamma', which is none of x, weight, bias"):
        check_layer(layer, normal(3, 5), stopped={"gamma": np.array([True])})
    with pytest.raises(ValueError, match="matmul"):
        check_layer(layer, normal(3, 4))
    assert put_back(layer, before)


def test_a_layer_that_is_not_complex_safe_is_compared_with_differences():
    class Absolute(Linear):
        def forward(self, x):
            y, backward = super().forward(x)
            return abs(y), lambda dy: backward(dy * np.sign(y))

    layer = linear(layer=Absolute)
    before = kept(layer)
    assert check_layer(layer, normal(3, 5), truth="complex").verdict == "inconclusive"
    assert put_back(layer, before)
    report = check_layer(layer, normal(3, 5))
    assert report.ok, report
    assert put_back(layer, before)


def test_a_parameter_that_casts_what_it_is_given_is_compared_with_differences():
    class Casting:
        def __init__(self, value):
            self.value, self.grad = value, np.zeros_like(value)

        value = property(
            lambda self: self._value, lambda self, value: setattr(self, "_value", np.asarray(value, np.float64))
        )

    layer = Linear(Casting(normal(5, 2)), Parameter(normal(2)))
    report = check_layer(layer, normal(3, 5))
    assert report.ok, report
    assert "ComplexWarning" in str(report)


@pytest.mark.parametrize(("method", "other"), [("forward", "parameters"), ("parameters", "forward")])
def test_what_lacks_a_method_of_a_layer_is_refused_by_name(method, other):
    half = type("Half", (), {other: lambda self, *_: {}})()
    with pytest.raises(TypeError, match=rf"a layer must have the methods forward and parameters, and Half has no {method}"):
        check_layer(half, normal(3))
