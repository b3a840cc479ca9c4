"""``weft.generate``: continue prompts with a language model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.generation.beam import BeamSearch, beam_search
from weft.generation.constraint import MakeConstraint
from weft.generation.request import Generation, OnToken, Request, new_request
from weft.generation.sampling import RandomStream, Sampling
from weft.generation.session import Session
from weft.generation.speculative import Speculation, decode_speculatively
from weft.generation.stopping import Stopping
from weft.models.decoder import Decoder, EncoderDecoder
from weft.support.deprecation import renamed_arguments
from weft.support.errors import InvalidInputError, OptionError

Prompts = Sequence[int] | Sequence[Sequence[int]] | np.ndarray


@renamed_arguments(beams="num_beams", draft="assistant_model", eos="eos_token_id")
def generate(
    module: Decoder, ids: Prompts | None = None, *, source: Any = None,
    max_new_tokens: int | None = None, max_length: int | None = None,
    eos_token_id: int | None = None, stop_tokens: Iterable[int] = (),
    stop_sequences: Iterable[Sequence[int]] = (), temperature: float | None = None,
    top_k: int | None = None, top_p: float = 1.0, min_p: float = 0.0,
    repetition_penalty: float = 1.0, key: int = 0, num_beams: int = 1, length_penalty: float = 1.0,
    early_stopping: bool = False, assistant_model: Decoder | None = None, draft_tokens: int = 4,
    on_token: Callable[[int, int], object] | None = None,
    constraint: MakeConstraint | None = None,
) -> Any:
    """Continue ``ids``: one prompt, or a list of prompts of any lengths.

    Returns a ``Generation`` for one prompt, a list of them for several. ``module`` is a
    ``Decoder``, as ``weft.models.decoder_from_transformers`` makes it; its caches are overwritten.
    More prompts than it has slots wait for idle slots.

    ``source`` is what the encoder of an ``EncoderDecoder`` reads, one array or a list of them: the
    tokens of a text, or a spectrogram. Without ``ids`` each sequence begins with the start token of
    the model; one prompt may serve several sources, and one source several prompts.

    A generation ends with the token ``eos_token_id``, one of ``stop_tokens``, one of
    ``stop_sequences``, or after ``max_new_tokens`` tokens (``max_length`` with the prompt).

    Without ``temperature`` each token is the most likely one. With it, tokens are drawn from the
    distribution that ``top_k``, ``top_p`` and ``min_p`` leave (``weft.generation.sampling``);
    prompt i of a list uses the random numbers of ``(key, i)``, whatever runs beside it.

    ``num_beams`` > 1 searches for the likeliest sequence (``weft.generation.beam``).
    ``assistant_model`` is a smaller decoder that proposes ``draft_tokens`` tokens per step; the
    distribution of the result remains that of ``module``. ``on_token(i, token)`` is called with
    each token of prompt i. ``constraint()`` makes the ``Constraint`` of a prompt, which says which
    tokens may follow.

    Raises ``InvalidInputError`` for invalid prompts and ``OptionError`` for invalid options.
    """
    if not isinstance(module, Decoder):
        raise InvalidInputError(
            "generate takes a decoder", got=type(module).__name__,
            help="weft.models.decoder_from_transformers(model) makes one of a transformers model")
    stopping = Stopping.make(
        module.vocab_size, max_new_tokens=max_new_tokens, max_length=max_length,
        eos_token_id=eos_token_id, stop_tokens=stop_tokens, stop_sequences=stop_sequences)
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                        repetition_penalty=repetition_penalty)
    single, pairs = _pairs(module, ids, source)
    requests = [new_request(module, prompt, sampling=sampling, stopping=stopping, source=read,
                            stream=RandomStream(key, index), on_token=_callback(on_token, index),
                            constraint=None if constraint is None else constraint())
                for index, (prompt, read) in enumerate(pairs)]
    search = BeamSearch(num_beams=num_beams, length_penalty=length_penalty,
                        early_stopping=early_stopping)
    plan = None if assistant_model is None else Speculation(assistant_model, draft_tokens)
    found = _run(module, requests, search, plan)
    return found[0] if single else found


def stream(module: Decoder, ids: Sequence[int] | np.ndarray | None = None, *, key: int = 0,
           source: Any = None, sampling: Sampling | None = None,
           constraint: MakeConstraint | None = None, cached: np.ndarray | None = None,
           **stopping: Any) -> Iterator[int]:
    """The tokens after one prompt, each as soon as it is known.

    ``cached`` are tokens that slot 0 of the decoder holds already.

    ``stopping`` are the stop conditions of ``generate``. Leaving the iterator ends the generation.
    """
    _, pairs = _pairs(module, ids, source)
    if len(pairs) != 1:
        raise InvalidInputError("a stream has one prompt", got=f"{len(pairs)} prompts")
    prompt, read = pairs[0]
    session = Session(module)
    if cached is not None:
        session.adopt(0, cached)
    request = session.submit(prompt, sampling=sampling or Sampling(), key=key, source=read,
                   constraint=None if constraint is None else constraint(), **stopping)
    try:
        for _, token in session.stream():
            yield token
        request.check()
    finally:
        session.clear()


def _run(module: Decoder, requests: list[Request], search: BeamSearch, plan: Speculation | None
         ) -> list[Generation]:
    if any(r.constraint for r in requests) and (search.num_beams != 1 or plan is not None):
        raise OptionError("a constraint cannot be combined with beams or an assistant model",
                          help="leave num_beams and assistant_model out")
    if search.num_beams != 1:
        _check_beams(module, requests, search, plan)
        return [beam_search(module, request, search)[0] for request in requests]
    if plan is not None:
        plan.check(module)
        for first in range(0, len(requests), module.slots):
            decode_speculatively(module, requests[first:first + module.slots], plan)
        return [request.result() for request in requests]
    session = Session(module)
    try:
        for request in requests:
            session.add(request)
        session.run()
    finally:
        session.clear()
    return [request.result() for request in requests]


def _check_beams(module: Decoder, requests: list[Request], search: BeamSearch,
                 plan: Speculation | None) -> None:
    search.check(module)
    for name, given in (("a temperature", not all(r.sampling.greedy for r in requests)),
                        ("an assistant model", plan is not None),
                        ("on_token", any(r.on_token is not None for r in requests))):
        if given:
            raise OptionError(f"beam search cannot be combined with {name}",
                              got=f"num_beams={search.num_beams}")


def _pairs(module: Decoder, ids: Prompts | None, source: Any) -> tuple[bool, list[tuple[Any, Any]]]:
    """Whether there is one result, and the prompt and the source of each."""
    if not isinstance(module, EncoderDecoder):
        if ids is None:
            raise InvalidInputError("there is no prompt", expected="ids: a sequence of tokens")
        single, prompts = _prompts(ids)
        return single, [(prompt, source) for prompt in prompts]
    one_prompt, prompts = (True, [[module.start_token]]) if ids is None else _prompts(ids)
    one_source, sources = _sources(source)
    if one_source:
        sources = sources * len(prompts)
    elif one_prompt:
        prompts = prompts * len(sources)
    if len(prompts) != len(sources):
        raise InvalidInputError("the numbers of prompts and of sources differ",
                                expected=f"{len(prompts)} sources", got=len(sources))
    return one_prompt and one_source, list(zip(prompts, sources, strict=True))


def _sources(source: Any) -> tuple[bool, list[Any]]:
    """Whether ``source`` is one source, and the list of sources.

    Of an array, the first axis counts sources if there are more axes than a source has: tokens
    are integers along one axis, spectrograms floats along two.
    """
    if source is None or hasattr(source, "__array__"):
        if source is None:
            return True, [None]
        array = np.asarray(source)
        single = array.ndim <= (1 if array.dtype.kind in "iu" else 2)
        return single, [array] if single else list(array)
    if not isinstance(source, Sequence) or isinstance(source, str):
        raise InvalidInputError("a source is an array or a sequence of tokens",
                                got=type(source).__name__)
    single = all(isinstance(token, (int, np.integer)) for token in source)
    return single, [np.asarray(source, np.int64)] if single else list(source)


def _prompts(ids: Prompts) -> tuple[bool, list[Any]]:
    """Whether ``ids`` is one prompt, and the list of prompts."""
    if isinstance(ids, np.ndarray):
        return ids.ndim < 2, [ids] if ids.ndim < 2 else list(ids)
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        if not hasattr(ids, "__array__"):
            raise InvalidInputError("a prompt is a sequence of tokens", got=type(ids).__name__)
        return _prompts(np.asarray(ids))
    single = all(isinstance(token, (int, np.integer)) for token in ids)
    return single, [list(ids)] if single else list(ids)


def _callback(on_token: Callable[[int, int], object] | None, index: int) -> OnToken | None:
    return None if on_token is None else lambda token: on_token(index, token)
