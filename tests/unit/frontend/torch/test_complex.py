"""Complex tensors as pairs, Fourier transforms; svd, eigh, their users; fake quantization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.frontend.torch.check import check, imported, normal
from weft.support.errors import UnsupportedModelError
from weft.transform import evaluate

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
fft, linalg = torch.fft, torch.linalg


def _window() -> Any:
    return torch.hann_window(8)


def _spectrum(x: Any) -> Any:
    return torch.stft(x.reshape(-1), 8, 2, window=_window(), return_complex=True)


def _pair(x: Any) -> Any:
    return torch.complex(x, x.flip(0) + 0.5)


def _rotated(x: Any) -> Any:
    turns = torch.polar(torch.ones(2), torch.arange(2.0))
    return torch.view_as_real(torch.view_as_complex(x.reshape(6, 2, 2)) * turns).flatten(1)


def _assigned(x: Any) -> Any:
    found = torch.zeros_like(_pair(x))
    found[:, 1:3] = _pair(x)[:, :2]
    found[0] = 1
    found[2:4, 1] = x[2:4, 0]
    return found.scatter_add(1, torch.zeros(6, 1, dtype=torch.long), _pair(x)[:, :1])


def _integers_assigned(x: Any) -> Any:
    found, integers = _pair(x), torch.arange(24).reshape(6, 4)
    found[1:3] = integers[:2]
    found[4] = integers[5]
    return found + _pair(x).copy_(integers > 7)


def _square(x: Any) -> Any:
    return x[:4] @ x[:4].T + torch.eye(4)


CASES: dict[str, Callable[..., Any]] = {
    "fft": lambda x: fft.fft(x, norm="ortho").abs(),
    "rfft": lambda x: torch.view_as_real(fft.rfft(x, n=5, norm="forward")),
    "irfft": lambda x: fft.irfft(fft.rfft(x), n=5),
    "fft2": lambda x: torch.view_as_real(fft.fft2(x)),
    "rfft2": lambda x: fft.irfft2(fft.rfft2(x) * 2, s=(6, 4)),
    "ifftn": lambda x: fft.ifftn(_pair(x)).imag,
    "hfft": lambda x: fft.hfft(_pair(x)),
    "stft": lambda x: torch.view_as_real(_spectrum(x)),
    "istft": lambda x: torch.istft(_spectrum(x), 8, 2, window=_window()),
    "arithmetic": lambda x: torch.view_as_real(
        (_pair(x) * 2j + x - _pair(x).conj() / 3) / (_pair(x) + 2)),
    "matmul": lambda x: torch.view_as_real(_pair(x) @ _pair(x).T),
    "sum with a matmul": lambda x: torch.view_as_real(
        torch.addmm(_pair(x)[:4], _pair(x).T, _pair(x)[:, :4], beta=0.5, alpha=2 - 1j)),
    "vectors": lambda x: torch.view_as_real(_pair(x) @ _pair(x)[0] * _pair(x)[0].dot(_pair(x)[1])),
    "linear": lambda x: torch.view_as_real(
        torch.nn.functional.linear(_pair(x), _pair(x[:3]), _pair(x[0, :3]))),
    "convolution": lambda x: torch.view_as_real(torch.nn.functional.conv_transpose1d(
        _pair(x)[None], _pair(x).reshape(6, 2, 2), _pair(x[0]), stride=2, groups=2)),
    "polar form": lambda x: (_pair(x).abs(), _pair(x).angle(), torch.polar(x.abs(), x).imag),
    "functions": lambda x: torch.view_as_real(torch.exp(_pair(x)) + torch.log(_pair(x)) ** 3),
    "more functions": lambda x: torch.view_as_real(
        torch.sqrt(_pair(x)) + torch.sinh(_pair(x)) * torch.atan(_pair(x)) + _pair(x) ** 0.5),
    "shapes": lambda x: torch.view_as_real(
        torch.cat([_pair(x)[1:3].T, _pair(x)[:2].reshape(4, 2)]).sum(0)),
    "rotation": _rotated,
    "beside reals": lambda x: torch.view_as_real(
        torch.cat([_pair(x), x]) + torch.where(x > 0, _pair(x), x + 1).tile(2, 1)
        + torch.nn.functional.pad(_pair(x), (0, 0, 6, 0), value=2) + x.sum(dtype=torch.complex64)),
    "assignments": lambda x: torch.view_as_real(_assigned(x)),
    "assignments of integers": lambda x: torch.view_as_real(_integers_assigned(x)),
    "real parts assigned": lambda x: x.clone().copy_(_pair(x)) * 2,
    "norm of a vector": lambda x: torch.linalg.vector_norm(_pair(x), dim=1),
    "comparison": lambda x: _pair(x) == _pair(x).conj(),
    "singular values": lambda x: linalg.svdvals(x.T) * 2,
    "svd": lambda x: (lambda u, s, v: u * s @ v)(*linalg.svd(x.T, full_matrices=False)),  # noqa: PLC3002
    "eigh": lambda x: linalg.eigh(_square(x))[0],
    "pinv": lambda x: linalg.pinv(x[None]),
    "pinv of symmetric": lambda x: linalg.pinv(_square(x), hermitian=True),
    "rank": linalg.matrix_rank,
    "nuclear norm": lambda x: linalg.matrix_norm(x, "nuc"),
    "solve": lambda x: linalg.solve(_square(x), x.T),
    "cholesky": lambda x: linalg.cholesky(_square(x)),
    "inverse": lambda x: linalg.inv(_square(x)),
    "lu": lambda x: linalg.lu_factor(_square(x))[0],
    "fake_quantize": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15),
    "fake_quantize channels": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.zeros(4, dtype=torch.int32), 1, -8, 7),
    "fake_quantize tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(0.1), torch.tensor(0, dtype=torch.int32), -8, 7),
}


@pytest.mark.sample(0.3, 8)
@pytest.mark.parametrize("case", CASES)
def test_pairs_and_matrices_give_what_torch_gives(case: str) -> None:
    check(CASES[case], normal(6, 4), rtol=1e-4, atol=1e-4)


class _Filter(torch.nn.Module):
    """A complex weight, input and output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gain", torch.complex(normal(4), normal(4, seed=1)))

    def forward(self, x: Any) -> Any:
        return x * self.gain


def test_complex_inputs_and_outputs_are_pairs_along_the_last_axis() -> None:
    model, x = _Filter().eval(), torch.complex(normal(3, 4), normal(3, 4, seed=2))
    mod = imported(model, (x,))
    assert mod["main"].params[0].checked_type.shape == (3, 4, 2)
    got = evaluate(mod, [torch.view_as_real(x).numpy()])
    np.testing.assert_allclose(got, torch.view_as_real(model(x)).numpy(), rtol=1e-5, atol=1e-6)


def test_an_operator_without_a_complex_form_is_named() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        imported(lambda x: torch.cumprod(_pair(x), 0).real, (normal(6, 4),))
    assert "aten.cumprod" in str(caught.value)
    assert "complex numbers" in str(caught.value)
