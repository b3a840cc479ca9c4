"""``LanguageModel``: a decoder with its tokenizer, from text to text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from weft.generation.constraint import MakeConstraint
from weft.generation.generate import stream
from weft.generation.sampling import Sampling
from weft.generation.text.adapted_model import AdaptedWeights
from weft.generation.text.chat_template import ChatTemplate
from weft.generation.text.grammar import Grammar, GrammarTokens, one_grammar
from weft.generation.text.prompt_cache import load_cache, save_cache
from weft.generation.text.stop_texts import as_stop_texts, until_stop
from weft.generation.text.tokenizer import Tokenizer
from weft.models.adapters import Adapter
from weft.models.architecture import Weights
from weft.models.compiled_decoder import CompiledDecoder
from weft.models.decoder import check_count
from weft.runtime.weights import Tensors
from weft.support.errors import InvalidInputError, OptionError

Message = Mapping[str, Any]
SCORED_TOKENS = 64  # logits of a call; those of a whole text would not fit into memory


class LanguageModel:
    """A model that continues texts: ``weft.models.load`` makes one of a folder or a file.

    ``weights`` are those of the decoder, for adapters; of them ``make_encoder`` compiles the
    decoder without its last matrix, which ``embed`` needs. ``identity`` tells the model from
    others, whose caches of prompts it refuses.
    """

    def __init__(self, decoder: CompiledDecoder, tokenizer: Tokenizer, *,
                 template: ChatTemplate | None = None,
                 make_encoder: Callable[[Weights], CompiledDecoder] | None = None,
                 weights: AdaptedWeights | None = None, identity: bytes = b"") -> None:
        self.decoder = decoder
        self.tokenizer = tokenizer
        self.template = template
        self._make_encoder = make_encoder
        self._weights = weights or AdaptedWeights(Weights({}), None)
        self._identity = identity
        self._encoder: CompiledDecoder | None = None
        self._grammar_tokens: GrammarTokens | None = None

    def generate(self, prompt: str | Sequence[Message], *, max_tokens: int = 256, **options: Any
                 ) -> str:
        """The text that follows a prompt, or the reply to the messages of a chat.

        ``max_tokens`` bounds the reply, ``options`` are those of ``stream``. The prompt and the
        reply must fit into the ``capacity`` of the model: longer replies are cut.
        """
        return "".join(self.stream(prompt, max_tokens=max_tokens, **options))

    def stream(self, prompt: str | Sequence[Message], *, max_tokens: int = 256,
               temperature: float | None = None, top_k: int | None = None, top_p: float = 1.0,
               min_p: float = 0.0, repetition_penalty: float = 1.0, seed: int = 0,
               stop: str | Iterable[str] = (), json_schema: str | Mapping[str, Any] | None = None,
               grammar: str | None = None, regex: str | None = None,
               cache: str | Path | None = None,
               on_token: Callable[[int], object] | None = None) -> Iterator[str]:
        """``generate`` in chunks, each as soon as it is known; leaving the loop ends the reply.

        Without ``temperature`` each token is the likeliest one. The reply ends before a text of
        ``stop``, at the model's token for an end, or with the form that it was given: JSON with a
        schema, a text of a grammar (Lark's notation, or GBNF), or of a regular expression. It may
        be cut by ``max_tokens`` before it has this form. ``cache`` is a file of ``save_cache``:
        the beginning that the prompt shares with it is not read again. ``on_token`` is called with
        every token, also those that write nothing.
        """
        constraint = self.constraint(json_schema=json_schema, grammar=grammar, regex=regex)
        check_count("max_tokens", max_tokens)
        texts, ids = as_stop_texts(stop), self.tokens_of(prompt)
        room = self.decoder.capacity - len(ids)
        if room < 1:
            raise InvalidInputError(
                "the prompt fills the context", got=f"{len(ids)} tokens",
                expected=f"fewer than {self.decoder.capacity} tokens",
                help="load the model with a larger capacity=")
        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                            repetition_penalty=repetition_penalty)
        cached = None if cache is None else self.load_cache(cache)
        found = stream(self.decoder, ids, key=seed, sampling=sampling,
                       max_new_tokens=min(max_tokens, room), stop_tokens=self.tokenizer.eos,
                       constraint=constraint, cached=cached)
        return until_stop(self._chunks(found, on_token), texts)

    def _chunks(self, tokens: Iterator[int], on_token: Callable[[int], object] | None
                ) -> Iterator[str]:
        def before_the_end() -> Iterator[int]:
            for token in tokens:
                if on_token is not None:
                    on_token(token)
                if token in self.tokenizer.eos:
                    return
                yield token

        for _, chunk in self.tokenizer.text_chunks(before_the_end()):
            if chunk:
                yield chunk

    def apply_lora(self, adapter: Tensors, scale: float = 1.0) -> None:
        """Add a low-rank adapter to the model, without compiling kernels: ``W + scale * B @ A``.

        ``adapter`` is a folder or a file as peft writes it, or its tensors by name. Adapters add
        up; ``remove_lora`` takes all away. Weights in blocks stay as they are: the model needs room
        for adapters beside them, by ``weft.models.load(..., lora_rank=)``. Raises
        ``InvalidInputError`` for an adapter that does not fit; the model is then as before.
        """
        found = self._weights.read(adapter, scale)
        self._use_adapters((*self._weights.adapters, found))

    def remove_lora(self) -> None:
        """Take all adapters away."""
        self._use_adapters(())

    def _use_adapters(self, adapters: Sequence[Adapter]) -> None:
        self._weights.use(self.decoder, adapters)
        self._encoder = None

    def explain(self) -> str:
        """How the model runs: its weights, what multiplies them, and ``Executable.explain``."""
        decoder, formats = self.decoder, self._weights.base.formats()
        facts = ["matrices: " + ", ".join(f"{n} {kind}" for kind, n in sorted(formats.items()))]
        if self._weights.has_blocks:
            facts.append(f"products with weights in blocks read activations as "
                         f"{decoder.activations} (activations= of weft.models.load)")
        facts.append(f"caches: {decoder.cache_bytes} bytes for {decoder.slots} x "
                     f"{decoder.capacity} tokens")
        if decoder.adapter_rank or self._weights.adapters:
            facts.append(f"adapters: {len(self._weights.adapters)}, with room for a rank of "
                         f"{decoder.adapter_rank} beside the weights")
        return "\n".join([*facts, decoder.executable.explain()])

    def save_cache(self, prompt: str | Sequence[Message], path: str | Path) -> None:
        """Read a prompt, and write its keys and values to a file, which ``stream`` reads.

        The file is there whole or not at all, and only this model takes it.
        """
        ids = np.array(self.tokens_of(prompt), np.int64)
        self.decoder.free(0)
        try:
            self.decoder.prefill([0], [ids])
            save_cache(self.decoder, 0, ids, self._weights.identity(self._identity), Path(path))
        finally:
            self.decoder.free(0)

    def load_cache(self, path: str | Path, slot: int = 0) -> np.ndarray:
        """Fill a slot of the decoder from a file of ``save_cache``; the tokens that it holds."""
        return load_cache(self.decoder, slot, self._weights.identity(self._identity), Path(path))

    def constraint(self, *, json_schema: str | Mapping[str, Any] | None = None,
                   grammar: str | None = None, regex: str | None = None) -> MakeConstraint | None:
        """What makes the constraint of a text of the form that is given; see ``stream``."""
        given = one_grammar(json_schema, grammar, regex)
        if given is None:
            return None
        if self._grammar_tokens is None:
            self._grammar_tokens = GrammarTokens(self.tokenizer, self.decoder.vocab_size)
        return Grammar(self._grammar_tokens, *given).start

    def tokens_of(self, prompt: str | Sequence[Message]) -> list[int]:
        """The tokens of a text, or of messages as the chat template writes them."""
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(prompt)
            if not ids and self.tokenizer.bos is not None:
                return [self.tokenizer.bos]
            return ids
        if self.template is None:
            raise InvalidInputError("the model has no chat template",
                                    help="pass a text, written as the model expects it")
        return self.tokenizer.encode(self.template.render(prompt), special=False)

    def log_probabilities(self, text: str) -> tuple[list[int], np.ndarray]:
        """The tokens of a text, and the logarithm of the probability of each but the first.

        A text that is longer than the context of the model is read in parts of that length.
        """
        ids = self.tokenizer.encode(text)
        if self.tokenizer.bos is not None and ids[:1] != [self.tokenizer.bos]:
            ids = [self.tokenizer.bos, *ids]
        if len(ids) < 2:
            raise InvalidInputError("the text has no token to predict",
                                    expected="at least 2 tokens", got=len(ids))
        found = np.empty(len(ids) - 1)
        for first in range(0, len(ids) - 1, self.decoder.capacity):
            part = ids[first:first + self.decoder.capacity + 1]
            found[first:first + len(part) - 1] = self._scores(part)
        return ids, found

    def _scores(self, ids: Sequence[int]) -> np.ndarray:
        decoder, found = self.decoder, np.empty(len(ids) - 1)
        decoder.free(0)
        try:
            for first in range(0, len(found), SCORED_TOKENS):
                read = np.array(ids[first:min(first + SCORED_TOKENS, len(found))], np.int64)
                logits = decoder.score([0], [read])[0].astype(np.float64)
                next_ids = ids[first + 1:first + 1 + len(read)]
                most = logits.max(axis=1, keepdims=True)
                total = np.log(np.exp(logits - most).sum(axis=1)) + most[:, 0]
                found[first:first + len(read)] = logits[np.arange(len(read)), next_ids] - total
        finally:
            decoder.free(0)
        return found

    def perplexity(self, text: str) -> float:
        """Exp of minus the mean logarithm of the probabilities of the tokens of a text."""
        return math.exp(-float(self.log_probabilities(text)[1].mean()))

    def embed(self, texts: str | Sequence[str], *, pooling: Literal["mean", "last"] = "mean"
              ) -> np.ndarray:
        """Vectors of length 1, float32 [texts, hidden size]: the states of the last layer.

        ``pooling`` averages those of all tokens, or takes that of the last one.
        """
        if pooling not in ("mean", "last"):
            raise OptionError("unknown pooling", expected="mean or last", got=pooling)
        if self._encoder is None:
            if self._make_encoder is None:
                raise InvalidInputError("the model has no encoder")
            self._encoder = self._make_encoder(self._weights.merged())
            self._encoder.adapters = {name: self.decoder.adapters[name]
                                      for name in self._encoder.adapters}
        vectors = [self._state(self._encoder, text, pooling)
                   for text in ([texts] if isinstance(texts, str) else texts)]
        found = np.array(vectors, np.float32)
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    def _state(self, encoder: CompiledDecoder, text: str, pooling: str) -> np.ndarray:
        ids = np.array(self.tokens_of(text), np.int64)
        encoder.free(0)
        try:
            states = encoder.score([0], [ids])[0]
        finally:
            encoder.free(0)
        return states[-1] if pooling == "last" else states.mean(axis=0)
