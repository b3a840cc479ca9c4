"""``model.generate`` of transformers under ``torch.compile(backend="weft")``, with both caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.seeded_models import seeded  # noqa: E402
from weft.compiler.integrations.torch import general, region  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that compiled a region."""
    found: list[str] = []
    for name in ("general_region", "specialize"):
        monkeypatch.setattr(region, name, _counted(name, getattr(region, name), found))
    torch._dynamo.reset()
    return found


def _counted(name: str, function: Callable[..., Any], found: list[str]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        made = function(*args)
        found.append(name)
        return made

    return call


MODELS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {
        "vocab_size": 97, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64, **_TOKENS}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {
        "vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, **_TOKENS}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "cache"), [("gpt2", None), ("llama", "static")])
def test_tokens_are_those_of_eager_torch(kind: str, cache: str | None, compiles: list[str]) -> None:
    """The prompt, the first step, and all other steps are a program each."""
    model = seeded(*MODELS[kind])
    model.generation_config.disable_compile = True  # of a static cache: it has a backend of its own
    ids = torch.randint(1, 97, (2, 5))
    options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": cache,
               "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        wanted = model.generate(ids, **options)
        model.forward = torch.compile(model.forward, backend="weft")
        found = model.generate(ids, **options)
        assert torch.equal(found, wanted)
        assert len(compiles) <= 3
        again = model.generate(ids, **options)
    assert torch.equal(again, wanted)
    assert len(compiles) <= 3


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k + 1, v * 2)


def inputs_of(batch: int, queries: int, keys: int) -> list[torch.Tensor]:
    return [torch.randn(batch, 2, count, 8) for count in (queries, keys, keys)]


def test_sizes_that_an_operator_needs_to_be_equal_are_one_symbol(compiles: list[str]) -> None:
    """TorchDynamo gives each length its own symbol of its own."""
    run = torch.compile(attended, backend="weft")
    for sizes in ((2, 3, 5), (4, 7, 6), (3, 9, 12), (6, 6, 6)):
        args = inputs_of(*sizes)
        torch.testing.assert_close(run(*args), attended(*args), rtol=1e-4, atol=1e-5)
    assert compiles == ["specialize", "general_region"]


def test_groups_of_equal_sizes_only_shrink() -> None:
    values = {"s0": 4, "s1": 4, "s2": 7, "s3": 7}
    assert general.groups_of(values, None) == (("s0", "s1"), ("s2", "s3"))
    later = {"s0": 4, "s1": 5, "s2": 5, "s3": 5}
    assert general.groups_of(later, (("s0", "s1"), ("s2", "s3"))) == (("s2", "s3"),)
