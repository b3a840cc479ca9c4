"""From the files of a language model to text."""

from weft.generation.text.chat_template import ChatTemplate
from weft.generation.text.language_model import LanguageModel
from weft.generation.text.load import load
from weft.generation.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "LanguageModel", "Tokenizer", "load"]
