"""Trust in programs: whose programs may run code on this machine.

The CPU kernels of a program are native code: whoever runs a program file runs what its maker put into it. So programs
are signed when they are compiled, with a key that is made for the user on first use, and kernels of a program run only
if it was compiled in this process, or is signed by the user's own key or by one the user trusts. A program without
kernels runs always: the NPU reaches nothing but its own memory.

Keys are Ed25519 and live in $TILEWRIGHT_KEYS, else in tilewright/keys of $XDG_CONFIG_HOME or ~/.config: `own.pem`,
readable by the user alone, `own.pub` to give away, and `trusted/NAME.pub`.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.common import store
from tilewright.common.text import is_plain
from tilewright.errors import UntrustedError, UsageError
from tilewright.isa.program import CpuStep, Program

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

#: What a signature begins with: it is over all that the file says. Those before had no form and left out a part.
_FORM = "all:"
OWN, PUBLIC, TRUSTED = "own.pem", "own.pub", "trusted"


def folder() -> Path:
    """The folder of keys."""
    named = os.environ.get("TILEWRIGHT_KEYS")
    return Path(named) if named else store.user_folder("XDG_CONFIG_HOME", ".config") / "keys"


def sign(program: Program) -> None:
    """Signs a program that was compiled in this process. Where there is no key it stays unsigned, with a note that
    says why."""
    try:
        key = _own()
    except UsageError as error:
        program.signature = ""
        program.notes.append(f"not signed, so its CPU kernels run in this process alone: {error}")
    else:
        program.signature = _FORM + key.sign(program.signed_digest()).hex()


def is_trusted(program: Program) -> bool:
    """True for a program of this process, and for one signed by the user's own key or one that the user trusts."""
    program.trusted = program.trusted or _verified(program)
    return program.trusted


def require(program: Program) -> None:
    """Raises `UntrustedError` for a program with kernels of somebody whom the user does not trust."""
    if any(isinstance(step, CpuStep) for step in program.steps) and not is_trusted(program):
        why = "is not signed by a key that you trust"
        if not program.signature:
            why = "is not signed"
        elif not program.signature.startswith(_FORM):
            why = "has a signature in the form of an older version, which left out names, metadata and input ranges"
        raise UntrustedError(
            f"{program.name} carries native code and {why}: compile the model here, or, if you trust where it comes "
            "from, use --trust (tilewright.load(path, trust=True)) or add its maker's key with `tilewright trust add`"
        )


def add(path: Path, name: str | None = None) -> str:
    """Trusts the public key in a file from now on; returns the name it is kept under. Raises `UsageError`."""
    chosen = name or path.stem
    if not is_plain(chosen):
        raise UsageError(f"a key must have a plain name (letters, digits, - and _), not {chosen!r}")
    try:
        data = store.read(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    if _public(data) is None:
        raise UsageError(f"{path} holds no Ed25519 public key in PEM; `tilewright trust show` prints one")
    target = folder() / TRUSTED / f"{chosen}.pub"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        store.write_atomically(target, data)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from None
    return chosen


def remove(name: str) -> None:
    """Trusts a key no more. Raises `UsageError` if there is none of that name."""
    known = dict(trusted())
    if name not in known:
        raise UsageError(f"no key {name!r} is trusted; there are: {', '.join(known) or 'none'}")
    known[name].unlink()


def trusted() -> Iterator[tuple[str, Path]]:
    """Name and file of each key that is trusted besides the user's own."""
    for path in sorted((folder() / TRUSTED).glob("*.pub")):
        yield path.stem, path


def own_public_key() -> str:
    """PEM of the key that others need to trust programs of this user. Raises `UsageError` where there is none."""
    return _pem(_own().public_key()).decode()


def _verified(program: Program) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        signature = bytes.fromhex(program.signature.removeprefix(_FORM))
    except ValueError:
        return False
    if not signature or not program.signature.startswith(_FORM):
        return False
    keys = [_read(path) for path in (folder() / PUBLIC, *(path for _, path in trusted()))]
    digest = program.signed_digest()
    for data in keys:
        key = _public(data) if data is not None else None
        if key is not None:
            with contextlib.suppress(InvalidSignature):
                key.verify(signature, digest)
                return True
    return False


def _own() -> Ed25519PrivateKey:
    """The user's key, made if there is none. Raises `UsageError` where it cannot be kept, or is damaged."""
    return _own_in(folder())


@functools.cache
def _own_in(where: Path) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = where / OWN
    try:
        if not path.exists():
            where.mkdir(parents=True, exist_ok=True, mode=0o700)
            made = Ed25519PrivateKey.generate().private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            _create(path, made)
        data = store.read(path)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(
            f"no key can be kept in {where} ({why}); set TILEWRIGHT_KEYS to a folder that can be written"
        ) from None
    key = None
    with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = serialization.load_pem_private_key(data, None)
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} is damaged, it holds no Ed25519 private key in PEM without a password; remove it, "
                         "and a new one is made")  # fmt: skip
    public = where / PUBLIC
    if _read(public) != _pem(key.public_key()):
        try:
            store.write_atomically(public, _pem(key.public_key()))
        except OSError as error:
            raise UsageError(f"cannot write {public}: {error.strerror or error}") from None
    return key


def _create(path: Path, data: bytes) -> None:
    """Writes a private file whole; of two processes that do so at once, one wins and both go on with its key."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
    finally:
        partial.unlink()


def _public(data: bytes) -> Ed25519PublicKey | None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


def _pem(key: Ed25519PublicKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _read(path: Path) -> bytes | None:
    try:
        return store.read(path)
    except OSError:
        return None
