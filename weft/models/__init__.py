"""Language models as decoders: programs of the weft IR with key and value caches."""

from weft.models.decoder import Decoder, check_append, check_copy, check_truncate

__all__ = ["Decoder", "check_append", "check_copy", "check_truncate"]
