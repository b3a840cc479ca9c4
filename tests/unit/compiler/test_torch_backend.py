"""torch modules and exported programs through weft.compile, and torch.compile on weft."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import op
from weft.ir.rewrite.pattern import any_
from weft.ir.rewrite.rules import rule
from weft.support.errors import InvalidInputError, InvalidModelError, OptionError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
nn = torch.nn


class Net(nn.Module):
    """A layer of each kind that matters to how weights are treated."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    torch._dynamo.reset()
    return Net().eval()


def image(batch: int = 2):
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(batch))


def close(got, expected) -> None:
    np.testing.assert_allclose(np.asarray(got.detach() if torch.is_tensor(got) else got),
                               expected.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_a_module_and_its_exported_program(net):
    x = image()
    close(weft.compile(net, example_inputs=(x,))(x), net(x))
    close(weft.compile(net, example_inputs={"x": x})(x.numpy()), net(x))
    close(weft.compile(torch.export.export(net, (x,)))(x), net(x))


def test_dynamic_shapes_by_name(net):
    model = weft.compile(net, example_inputs=(image(),), inputs={"x": ("batch", 3, 8, 8)})
    assert model.inputs[0].shape == ("batch", 3, 8, 8)
    assert model.outputs[0].shape == ("batch", 4)
    for batch in (1, 3, 1):
        close(model(image(batch)), net(image(batch)))
    with torch.no_grad():
        expected = net(image(5))
        net.last.weight.zero_()
    close(model(image(5)), expected)  # the program has weights of its own


def test_bounds_that_torch_finds():
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(16.0)[None])

        def forward(self, x):
            return x + self.table[:, : x.shape[1]]

    module = Positions().eval()
    model = weft.compile(module, example_inputs=(torch.ones(2, 5),), inputs={"x": ("b", "length")})
    close(model(torch.ones(1, 16)), module(torch.ones(1, 16)))
    with pytest.raises(InvalidInputError, match="torch does not run the model where"), \
            pytest.warns(weft.FallbackWarning, match="does not cover"):
        model(torch.ones(1, 17))


def test_what_a_module_needs_is_said(net):
    with pytest.raises(OptionError, match="needs example_inputs"):
        weft.compile(net)
    with pytest.raises(OptionError, match="unknown tensor argument 'y'"):
        weft.compile(net, example_inputs=(image(),), inputs={"y": ("n",)})
    with pytest.raises(OptionError, match="another size"):
        weft.compile(net, example_inputs=(image(),), inputs={"x": ("n", 3, 9, 8)})
    with pytest.raises(InvalidModelError, match="training mode"):
        weft.compile(net.train(), example_inputs=(image(),))
    with pytest.raises(OptionError, match="example_inputs are for modules"):
        weft.compile(weft.parse("def @main(%x: float32) { tanh(%x) }"), example_inputs=(1,))


def test_torch_compile_without_gradients(net):
    compiled = torch.compile(net, backend=weft.torch_backend)
    with torch.no_grad():
        close(compiled(image()), net(image()))
        net.last.weight.mul_(2.0)  # weights are constants until they change
        close(compiled(image()), net(image()))


def test_torch_compile_of_sizes_that_vary(net):
    compiled = torch.compile(net, backend=weft.torch_backend, dynamic=True)
    with torch.inference_mode():
        for batch in (2, 3, 5, 3):
            close(compiled(image(batch)), net(image(batch)))


def test_gradients_flow_through_what_weft_computed(net):
    compiled = torch.compile(net, backend=weft.torch_backend)
    compiled(image()).square().sum().backward()
    found = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net(image()).square().sum().backward()
    for mine, parameter in zip(found, net.parameters(), strict=True):
        close(mine, parameter.grad)


def test_graph_breaks_and_options():
    def function(x):
        y = torch.tanh(x) + 1
        torch._dynamo.graph_break()
        return y * x.sum()

    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 6)
    options = {"opt_level": 1, "threads": 1}
    close(torch.compile(function, backend=weft.torch_backend, options=options)(x), function(x))


def test_a_users_rule_joins_torch_compile():
    @rule(op.tanh(any_("x")))
    def tanh_is_negation(x):
        """Wrong on purpose: it shows that the rule was applied."""
        return op.negative(x)

    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 6)
    compiled = torch.compile(lambda x: torch.tanh(x) + 1,
                             backend=weft.torch_backend(strict=True),
                             options={"rules": [tanh_is_negation]})
    close(compiled(x), 1 - x)


@pytest.mark.parametrize(("function", "options", "message"), [
    (lambda x: torch.fft.rfft(x).abs() + torch.cdist(x[None], x[None]), {}, "aten._fft_r2c"),
    (torch.tanh, {"optlevel": 1}, "optlevel"),
])
def test_what_cannot_be_compiled_is_said(function, options, message):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=weft.torch_backend(strict=True), options=options)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message):
        compiled(torch.ones(4))


def test_memory_is_shared_with_torch():
    from weft.compiler.integrations.torch.layout import tensor_maker
    from weft.frontend.torch.dtypes import array_of

    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64):
        tensor = torch.ones(4, dtype=dtype)
        array = array_of(tensor)
        tensor[0] = 0
        assert array[0] == 0
        back = tensor_maker(dtype)(array.copy())
        assert back.dtype == dtype
        assert torch.equal(back, tensor)


def test_the_entry_point_names_the_backend():
    import tomllib
    from importlib import import_module
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["weft"].partition(":")
    assert getattr(import_module(module), name) is weft.torch_backend.torch_backend
