"""Signatures of artifacts (Ed25519): who vouches for a file, checked before anything of it is used.

``signatures.json`` maps public keys to signatures of the checksum of the head. The head holds the
checksums of all other members, each of which is verified when it is read, so a signature covers
whatever a program is made of. Checking needs the ``cryptography`` package (``weft[sign]``).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.runtime.artifact_contents import HEAD
from weft.runtime.artifact_file import ArtifactFile
from weft.support.errors import MissingToolError, OptionError, SignatureError

SIGNATURES = "signatures.json"
_PREFIX = "ed25519:"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64


def ed25519() -> Any:
    """The module of ``cryptography``; ``MissingToolError`` if it is not installed."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519 as found
    except ImportError:
        raise MissingToolError("signatures need the cryptography package",
                               help="pip install weft[sign]") from None
    return found


def key_text(raw: bytes) -> str:
    """A public key as text: ``ed25519:`` and its bytes in base 64."""
    return _PREFIX + base64.b64encode(raw).decode()


def public_key(given: object) -> str:
    """A public key as text; ``given`` is that, the path of a file with it, or a key object.

    Raises ``OptionError`` for anything else.
    """
    raw = getattr(given, "public_bytes_raw", None)
    if raw is not None:
        return key_text(raw())
    if isinstance(given, (str, Path)):
        text = str(given)
        try:
            if not text.startswith(_PREFIX):
                text = Path(text).read_text("ascii").strip()
            if _decoded(text.removeprefix(_PREFIX), _KEY_BYTES) and text.startswith(_PREFIX):
                return text
        except (OSError, ValueError):
            pass
    raise OptionError("not a public key", got=repr(given),
                      expected="ed25519:... or the path of a file with it (weft keys)")


def message_of(digest: str) -> bytes:
    """What is signed: the checksum of a head, after words that no other protocol signs."""
    return b"weft artifact\n" + digest.encode()


def signatures_of(file: ArtifactFile) -> dict[str, bytes]:
    """The signatures of a file by public key, unchecked; ``SignatureError`` for a damaged list."""
    if SIGNATURES not in file.extents:
        return {}
    try:
        found = {str(key): base64.b64decode(text, validate=True) for key, text
                 in json.loads(bytes(file.unchecked(SIGNATURES))).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SignatureError("a damaged list of signatures", where=SIGNATURES, got=error) from None
    if any(len(one) != _SIGNATURE_BYTES for one in found.values()):
        raise SignatureError("a damaged list of signatures", where=SIGNATURES)
    return found


def signatures_text(signatures: Mapping[str, bytes]) -> bytes:
    """The member with these signatures."""
    plain = {key: base64.b64encode(one).decode() for key, one in signatures.items()}
    return json.dumps(plain, indent=1, sort_keys=True).encode()


def is_right(file: ArtifactFile, key: str, signature: bytes) -> bool:
    """Whether a signature is that of the owner of the key for this file."""
    raw = _decoded(key.removeprefix(_PREFIX), _KEY_BYTES)
    if raw is None:
        return False
    keys = ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        keys.Ed25519PublicKey.from_public_bytes(raw).verify(
            signature, message_of(file.contents.checksums[HEAD]))
    except (InvalidSignature, ValueError):
        return False
    return True


def check_signed(file: ArtifactFile, trusted: Sequence[object]) -> None:
    """Raise ``SignatureError`` unless one of the ``trusted`` keys has signed the file."""
    if isinstance(trusted, (str, bytes)):
        raise OptionError("trusted_keys is not a list of keys", got=repr(trusted),
                          expected="a list of public keys")
    keys = [public_key(one) for one in trusted]
    found = signatures_of(file) if HEAD in file.extents else {}
    if not found:
        raise SignatureError("the artifact is not signed", expected="a signature of a trusted key",
                             help="sign it: weft sign FILE --key NAME.key")
    both = [key for key in keys if key in found]
    if not both:
        raise SignatureError("no trusted key has signed the artifact", got=", ".join(found),
                             expected=" or ".join(keys) or "no key is trusted")
    if not any(is_right(file, key, found[key]) for key in both):
        raise SignatureError("the signature is not one of this artifact", got=", ".join(both),
                             help="the file has changed since it was signed: get it again")


def _decoded(text: str, size: int) -> bytes | None:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == size else None
