"""Architectures whose graphs were refused, without gradients and with them, whole in weft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
nn = torch.nn

SMALL = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}


def image_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Dropout(0.3), nn.Flatten(), nn.Linear(64, 5))


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x)[0]


def distilbert() -> nn.Module:
    config = transformers.DistilBertConfig(vocab_size=50, dim=16, hidden_dim=32, n_layers=1,
                                           n_heads=4)
    return transformers.DistilBertModel(config)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "images": (image_net, lambda: torch.randn(2, 3, 8, 8)),
    "attention": (SelfAttention, lambda: torch.randn(2, 5, 16)),
    "encoder": (lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 1), lambda: torch.randn(2, 5, 16)),
    "distilbert": (distilbert, lambda: torch.randint(0, 50, (2, 6))),
    "llama": (lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)),
              lambda: torch.randint(0, 50, (2, 6))),
}


def first_of(result: Any) -> Any:
    return result if torch.is_tensor(result) else next(iter(result.values()))


def outcome(model: nn.Module, backend: Any, x: Any, *, grad: bool
            ) -> tuple[Any, dict[str, Any]]:
    """The result of a seeded call, and the gradients of all parameters."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    with torch.set_grad_enabled(grad):
        result = first_of(torch.compile(model, backend=backend)(x))
    if not grad:
        return result, {}
    model.zero_grad(set_to_none=True)
    result.square().mean().backward()
    return result, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("mode", ["inference", "gradients", "training"])
@pytest.mark.parametrize("name", MODELS)
def test_results_and_gradients(name, mode):
    torch.manual_seed(0)
    make, example = MODELS[name]
    model, x = make().train(mode == "training"), example()
    buffers = {n: b.clone() for n, b in model.named_buffers()}
    backends = (weft.torch_backend(strict=True), "aot_eager")
    found = []
    for backend in backends:
        model.load_state_dict(buffers, strict=False)
        result, gradients = outcome(model, backend, x, grad=mode != "inference")
        found.append((result.detach(), gradients, {n: b.clone() for n, b in model.named_buffers()}))
    (got, gradients, state), (expected, others, other_state) = found
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state, other_state, rtol=1e-4, atol=1e-5)
    assert gradients.keys() == others.keys()
    largest = max((g.abs().max().item() for g in others.values()), default=0.0)
    for key, gradient in others.items():
        torch.testing.assert_close(gradients[key], gradient, rtol=0, atol=1e-4 * largest)


@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
def test_generation_with_grouped_queries(kind):
    torch._dynamo.reset()
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SMALL)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    prompt = torch.randint(0, 50, (1, 5))
    expected = model.generate(prompt, max_new_tokens=4, do_sample=False)
    model.forward = torch.compile(model.forward, backend=weft.torch_backend(strict=True))
    assert torch.equal(model.generate(prompt, max_new_tokens=4, do_sample=False), expected)
