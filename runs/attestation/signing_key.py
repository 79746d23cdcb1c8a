"""The key that signs runs: an Ed25519 private key, whose ID is the public key in 64 hex digits."""

import contextlib
import os
import tempfile
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner, SSlibKey

from runs.errors import InputError, SetupError
from runs.files.reading import SIGNING_KEY, read_whole
from runs.processes.interrupts import critical


def load_signer(path: Path | None) -> CryptoSigner:
    """Return the key for signing runs.

    Args:
        path: PEM file of an Ed25519 private key; None = the account's key, which is created on first use.

    Raises:
        InputError: If the file has no such key.
        SetupError: If the account's key cannot be created.
    """
    path = path or _own_key()
    fix = "create a key with: openssl genpkey -algorithm ed25519 -out FILE"
    content = read_whole(path, fix, max_bytes=SIGNING_KEY.file_bytes, option="--signing-key")
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: it has a passphrase
        raise InputError(f"--signing-key {path}: not a private key in PEM, or it has a passphrase", fix) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"--signing-key {path}: not an Ed25519 key", fix)
    return signer_of(key)


def signer_of(key: Ed25519PrivateKey) -> CryptoSigner:
    """Return a signer whose key ID is the public key."""
    public = key.public_key()
    return CryptoSigner(key, SSlibKey.from_crypto(public, public.public_bytes_raw().hex()))


def _own_key() -> Path:
    try:
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        path = Path(home).expanduser().absolute() / "mlperf-llama-vllm" / "signing-key.pem"
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_key(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: the account has no home directory
        why = getattr(error, "strerror", None) or error
        raise SetupError(
            f"the signing key cannot be created in the account's configuration folder: {why}",
            "give a key with --signing-key FILE, or set XDG_CONFIG_HOME to a folder that you can write to",
        ) from error
    return path


def _make_key(path: Path) -> None:
    """Create a key that only its owner may read. If multiple processes create it, the first key is kept."""
    with critical():
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(CryptoSigner.generate_ed25519().private_bytes)
                stream.flush()
                os.fsync(stream.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            Path(temporary).unlink()
