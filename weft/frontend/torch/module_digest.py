"""A digest of a torch module before it is traced."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from weft.frontend.torch.code_digest import Digest, UnknownError, is_library
from weft.frontend.torch.registry import CONVERTERS

# Attributes of every module, and one that does not affect the computation.
_OWN = frozenset(vars(torch.nn.Module())) | {"_is_full_backward_hook"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def module_digest(model: torch.nn.Module, example_inputs: Sequence[Any] | Mapping[str, Any] | None
                  ) -> Digest | str:
    """A digest that is equal for modules with the same traced program, or why there is none.

    It covers the code of the module's classes and of the functions that they call, their settings,
    the weights, the arguments (of tensors only the metadata), and the library versions.
    """
    if torch.overrides._get_current_function_mode_stack() \
            or torch.utils._python_dispatch._get_current_dispatch_mode_stack() \
            or CONVERTERS.of_users():  # noqa: SLF001 - torch has no public name for modes
        return "converters of the user or modes of torch decide about the program"
    digest = Digest()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with digest.part("a setting or function of torch"):
                _add_state(digest)
            with digest.part("the example inputs"):
                _add_arguments(digest, example_inputs)
            _add_modules(digest, model)
    except UnknownError as error:
        return f"no digest covers {error}"
    except RecursionError:
        return "no digest covers code that is nested too deeply"
    return digest


def _add_state(digest: Digest) -> None:
    """Add the settings of torch that affect tracing."""
    attention = torch.backends.cuda
    digest.add(torch.get_default_dtype(), torch.is_grad_enabled(),
               torch.is_inference_mode_enabled(),
               torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"),
               torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled,
               attention.flash_sdp_enabled(), attention.math_sdp_enabled(),
               attention.mem_efficient_sdp_enabled(),
               torch.are_deterministic_algorithms_enabled())
    digest.value(torch)
    digest.value(torch.nn.functional)
    digest.klass(torch.Tensor)
    digest.klass(torch.nn.Module)


def _add_arguments(digest: Digest, inputs: Any) -> None:
    leaves, structure = pytree.tree_flatten(inputs)
    text = str(structure)
    if " at 0x" in text:
        raise UnknownError("the structure of the example inputs")
    digest.add(text)
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            _add_tensor(digest, leaf)
        else:
            digest.value(leaf)


def _add_modules(digest: Digest, model: torch.nn.Module) -> None:
    tensors: dict[tuple[int, object], int] = {}
    named = (*model.named_parameters(remove_duplicate=False),
             *model.named_buffers(remove_duplicate=False))
    for path, tensor in named:
        # Tensors that share memory are traced as one.
        key = tensor.data_ptr(), (tensor.shape, tensor.stride(), tensor.dtype)
        with digest.part(f"the weight {path}"):
            digest.add(path, tensors.setdefault(key, len(tensors)), type(tensor).__name__)
            _add_tensor(digest, tensor)
            digest.known(tensor)
            if tensors[key] == len(tensors) - 1:
                _add_content(digest, tensor)
    numbers: dict[int, int] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        is_new = id(module) not in numbers
        with digest.part(f"the module {path or type(module).__name__}"):
            digest.add(path, numbers.setdefault(id(module), len(numbers)))
            if is_new:
                _add_module(digest, module)


def _add_module(digest: Digest, module: torch.nn.Module) -> None:
    if any(vars(module).get(hooks) for hooks in _HOOKS):
        raise UnknownError("a hook")
    kind = type(module)
    digest.klass(kind)
    for base in kind.__mro__:
        if not is_library(base.__module__):
            digest.klass(base)
    digest.add(module.training, sorted(vars(module)["_non_persistent_buffers_set"]))
    for name, value in sorted(vars(module).items()):
        if name in _OWN:
            continue
        digest.add(name)
        with digest.part(f"the attribute {type(module).__name__}.{name}"):
            if isinstance(value, torch.Tensor):
                _add_tensor(digest, value)
                _add_content(digest, value)
            else:
                digest.value(value)
    for name, value in sorted(vars(module)["_modules"].items()):
        digest.add(name, value is None)


def _add_tensor(digest: Digest, tensor: torch.Tensor) -> None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) \
            or tensor.device.type != "cpu" or tensor.layout is not torch.strided \
            or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise UnknownError("a tensor that is not plain")
    digest.add(tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), str(tensor.dtype),
               tensor.requires_grad)


def _add_content(digest: Digest, tensor: torch.Tensor) -> None:
    plain = tensor.detach()
    data = plain if plain.is_contiguous() else plain.contiguous()
    digest.add_bytes(memoryview(data.reshape(-1).view(torch.uint8).numpy()))
