"""The tokenizers of GGUF files: byte-level BPE, and BPE by scores as SentencePiece makes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.generation.text.tokenizer import Tokenizer, tokenizers_library
from weft.support.errors import InvalidModelError, UnsupportedModelError, WeftError

_PREFIX = "tokenizer.ggml."
_CONTROL, _USER_DEFINED = 3, 4
_SPACE, _UNKNOWN = "▁", "[UNK]"
_GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",)
_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+"
          r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# How texts are split before BPE, by "tokenizer.ggml.pre".
_SPLITS: dict[str, tuple[str, ...]] = {
    "default": _GPT2, "gpt-2": _GPT2, "phi-2": _GPT2, "olmo": _GPT2,
    "smollm": (r"\p{N}", *_GPT2), "llama-bpe": (_WORDS % "{1,3}",), "llama3": (_WORDS % "{1,3}",),
    "qwen2": (_WORDS % "",), "stablelm2": (_WORDS % "",),
}
# Tokens that end a reply, where the metadata name one end alone.
_ENDS = ("</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>")


def gguf_tokenizer(metadata: Mapping[str, Any], vocab_size: int) -> Tokenizer:
    """The tokenizer that the metadata of a file describe, for a model of ``vocab_size`` tokens."""
    fields = {key.removeprefix(_PREFIX): value for key, value in metadata.items()
              if key.startswith(_PREFIX)}
    kind, tokens = fields.get("model"), _texts(fields.get("tokens"))
    if kind not in ("gpt2", "llama", "bert"):
        raise UnsupportedModelError(
            f"the tokenizer {kind!r} is not supported",
            expected="gpt2 (bytes), llama (SentencePiece), bert (WordPiece)")
    if tokens is None or len(tokens) > vocab_size:
        raise InvalidModelError("the tokenizer does not match the vocabulary of the model",
                                expected=f"at most {vocab_size} tokens",
                                got=None if tokens is None else len(tokens))
    types = list(fields.get("token_type", ()))
    bos, eos = (_token(fields.get(f"{name}_token_id"), tokens) for name in ("bos", "eos"))
    library = tokenizers_library()
    try:
        make = {"gpt2": _bytes, "llama": _scored, "bert": _words}[kind]
        made = make(library, fields, tokens)
    except WeftError:
        raise
    except Exception as error:  # noqa: BLE001 - the library raises Exception itself
        raise InvalidModelError("the tokenizer cannot be made", got=error) from None
    if kind == "bert":
        return Tokenizer(made)
    for special in (True, False):
        wanted = _CONTROL if special else _USER_DEFINED
        added = [text for text, kind in zip(tokens, types, strict=False) if kind == wanted]
        added = [library.AddedToken(text, special=special, normalized=False) for text in added]
        (made.add_special_tokens if special else made.add_tokens)(added)
    if bos is not None and fields.get("add_bos_token", kind == "llama"):
        made.post_processor = library.processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)])
    ends = {made.token_to_id(text) for text in _ENDS} | {eos}
    ends.add(_token(fields.get("eot_token_id"), tokens))
    return Tokenizer(made, bos=bos, eos=[end for end in ends if end is not None])


def _token(value: Any, tokens: Sequence[str]) -> int | None:
    return value if type(value) is int and value < len(tokens) else None


def _texts(value: Any) -> list[str] | None:
    """A list of texts; ``None`` for all else."""
    are_texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
    return value if are_texts else None


def _bytes(library: Any, fields: Mapping[str, Any], tokens: Sequence[str]) -> Any:
    """BPE over bytes, as GPT-2: merges are part of the file."""
    merges, pre = _texts(fields.get("merges")), fields.get("pre", "default")
    if pre not in _SPLITS:
        raise UnsupportedModelError(f"the splitting of texts {pre!r} is not supported",
                                    expected=", ".join(_SPLITS))
    if merges is None or not all(merge.count(" ") == 1 for merge in merges):
        raise InvalidModelError("a tokenizer without merges", expected="pairs of tokens")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    made = library.Tokenizer(library.models.BPE(
        {text: number for number, text in enumerate(tokens)}, pairs,
        ignore_merges=pre.startswith("llama")))
    splits = [library.pre_tokenizers.Split(library.Regex(text), "isolated")
              for text in _SPLITS[pre]]
    made.pre_tokenizer = library.pre_tokenizers.Sequence(
        [*splits, library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = library.decoders.ByteLevel()
    return made


def _words(library: Any, fields: Mapping[str, Any], tokens: Sequence[str]) -> Any:
    """WordPiece; the file marks beginnings of words, where its makers mark the other parts."""
    def written(token: str) -> str:
        is_special = token.startswith("[") and token.endswith("]")
        return token if is_special else token[1:] if token.startswith(_SPACE) else f"##{token}"

    vocabulary = {written(token): number for number, token in enumerate(tokens)}
    names = {"cls_token_id": "[CLS]", "seperator_token_id": "[SEP]"}  # as the format spells it
    first, last = (tokens[number] if (number := _token(fields.get(name), tokens)) is not None
                   else usual for name, usual in names.items())
    if not {first, last, _UNKNOWN} <= vocabulary.keys():
        raise InvalidModelError("a tokenizer without tokens around a text",
                                expected=f"{first}, {last}, {_UNKNOWN}")
    made = library.Tokenizer(library.models.WordPiece(vocabulary, unk_token=_UNKNOWN))
    made.normalizer = library.normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    made.decoder = library.decoders.WordPiece()
    made.post_processor = library.processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, vocabulary[first]),
                                                     (last, vocabulary[last])])
    return made


def _scored(library: Any, fields: Mapping[str, Any], tokens: Sequence[str]) -> Any:
    """BPE over characters: the merge with the token of the best score comes first."""
    numbers, scores = {text: i for i, text in enumerate(tokens)}, fields.get("scores", ())
    if len(scores) < len(tokens):
        raise InvalidModelError("a tokenizer without scores", expected=len(tokens),
                                got=len(scores))
    made = library.Tokenizer(library.models.BPE(
        numbers, _merges(numbers, scores), fuse_unk=True, byte_fallback=True,
        unk_token=tokens[_token(fields.get("unknown_token_id"), tokens) or 0]))
    steps = [library.normalizers.Replace(" ", _SPACE)]
    if fields.get("add_space_prefix", True):
        steps.insert(0, library.normalizers.Prepend(_SPACE))
    made.normalizer = library.normalizers.Sequence(steps)
    decoders = library.decoders
    made.decoder = decoders.Sequence([
        decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
        *([decoders.Strip(" ", 1, 0)] if fields.get("add_space_prefix", True) else [])])
    return made


def _merges(numbers: Mapping[str, int], scores: Sequence[float]) -> Iterable[tuple[str, str]]:
    found = []
    for text, number in numbers.items():
        splits = [(text[:at], text[at:]) for at in range(1, len(text))]
        parts = [(left, right) for left, right in splits if left in numbers and right in numbers]
        parts.sort(key=lambda pair: (numbers[pair[0]], numbers[pair[1]]))
        found += [(-float(scores[number]), pair) for pair in parts]
    found.sort(key=lambda entry: entry[0])
    return [pair for _, pair in found]
