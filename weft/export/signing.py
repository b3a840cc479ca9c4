"""Signing artifacts: keys, and the signatures of new and of written files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.export.files import replacing
from weft.runtime.artifact_contents import HEAD
from weft.runtime.artifact_file import ArtifactFile
from weft.runtime.artifact_format import Chunks, write_archive
from weft.runtime.artifact_loader import errors_named
from weft.runtime.artifact_signatures import (
    SIGNATURES,
    ed25519,
    key_text,
    message_of,
    signatures_of,
    signatures_text,
)
from weft.support.errors import ArtifactError, OptionError


def make_keys(path: str | os.PathLike[str]) -> str:
    """Write a new private key to ``PATH.key``, for its owner alone, and the public one to PATH.pub.

    Returns the public key. Raises ``OptionError`` if one of the files is there.
    """
    private = ed25519().Ed25519PrivateKey.generate()  # raises if the package is missing
    from cryptography.hazmat.primitives import serialization as form

    secret, public = Path(f"{os.fspath(path)}.key"), Path(f"{os.fspath(path)}.pub")
    for file in (secret, public):
        if file.exists():
            raise OptionError("a key is not replaced", got=file, help="choose another name")
    text = private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    made = key_text(private.public_key().public_bytes_raw())
    try:
        with open(secret, "xb", opener=_for_the_owner) as file:
            file.write(text)
        public.write_text(f"{made}\n", encoding="ascii")
    except OSError as error:
        raise ArtifactError("the keys cannot be written", where=path,
                            got=error.strerror or error) from None
    return made


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def signer(key: object) -> Callable[[str], dict[str, bytes]]:
    """What signs the checksum of a head; ``key`` is the path of a private key, or the key object.

    Raises ``OptionError`` for anything else.
    """
    private: Any = key if hasattr(key, "sign") else _read_key(key)
    try:
        public = key_text(private.public_key().public_bytes_raw())
    except AttributeError:
        raise OptionError("not an Ed25519 key", got=type(private).__name__) from None

    def sign(digest: str) -> dict[str, bytes]:
        return {public: private.sign(message_of(digest))}

    return sign


def _read_key(path: object) -> Any:
    ed25519()  # raises if the package is missing
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(Path(path).read_bytes(), None)  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise OptionError("not a private key", got=f"{path}: {error}",
                          expected="the path of a file that weft keys wrote") from None


def sign_artifact(path: str | os.PathLike[str], key: object) -> None:
    """Add the signature of ``key`` to a file, beside those of other keys.

    Every member is verified before. Raises ``ArtifactError`` for a damaged file and for one of an
    earlier format, ``OptionError`` for a key that is none.
    """
    with errors_named(path):
        sign, file = signer(key), ArtifactFile(Path(path))
        if HEAD not in file.extents:
            raise ArtifactError("a file of this format cannot be signed",
                                got=f"version {file.contents.version}", help="export it again")
        members: dict[str, Chunks] = {
            name: (file.unchecked(name) if name == HEAD else file.read(name),)
            for name in file.extents if name != SIGNATURES}
        both = signatures_of(file) | sign(file.contents.checksums[HEAD])
        members[SIGNATURES] = (signatures_text(both),)
        try:
            with replacing(Path(path)) as written:
                write_archive(written, members)
        except OSError as error:
            raise ArtifactError("the artifact cannot be written",
                                got=error.strerror or error) from None
