"""Ed25519 signatures of site releases, so that a centre knows who sent what.

A site signs the canonical JSON of its document without the field "signature". The centre keeps a
folder with one public key for each site, ``NAME.pem``. Keys are PEM files as OpenSSL writes them.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpeffects.documents import canonical, read
from dpeffects.errors import MissingExtraError, ReleaseError
from dpeffects.services.sites.document import Signature, SiteDocument, check_site

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519

ALGORITHM = "ed25519"
_MOST_BYTES = 100_000

StrPath = str | os.PathLike[str]
R = TypeVar("R", bound=SiteDocument)


def make_keys(site: str, folder: StrPath = ".") -> tuple[Path, Path]:
    """Make a key pair for a site, and its folder; existing files are not overwritten.

    Returns
    -------
    tuple of Path
        ``NAME.private.pem``, which stays at the site and is readable by its owner only, and
        ``NAME.pem``, which goes to the centre.
    """
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    check_site(site)
    if site != Path(site).name or site in (".", ".."):
        raise ReleaseError(f"{site!r} cannot be the name of a key file")
    key = Ed25519PrivateKey.generate()
    private, public = Path(folder) / f"{site}.private.pem", Path(folder) / f"{site}.pem"
    if os.path.lexists(public):  # before a private key is made that has no public one
        raise ReleaseError(f"{public} exists; keys are not overwritten")
    pem = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    _write_new(private, pem, 0o600)
    shared = to.PublicFormat.SubjectPublicKeyInfo
    _write_new(public, key.public_key().public_bytes(to.Encoding.PEM, shared), 0o644)
    return private, public


def sign(release: R, key: StrPath | ed25519.Ed25519PrivateKey) -> R:
    """Return the release signed with a private key, or with the one in a PEM file."""
    private = read_private(key) if isinstance(key, str | os.PathLike) else key
    signed = base64.b64encode(private.sign(_signed_bytes(release))).decode("ascii")
    signature = Signature(ALGORITHM, fingerprint(private.public_key()), signed)
    return replace(release, signature=signature)


def verify_all(releases: Iterable[Any], folder: StrPath) -> None:
    """Refuse releases that are not signed by the key of their site in a folder."""
    keys = read_keys(folder)
    for release in releases:
        if release.site not in keys:
            raise ReleaseError(
                f"the site {release.site!r} is not known: {folder} holds no "
                f"{release.site}.pem (it has {', '.join(sorted(keys)) or 'no keys'})"
            )
        verify(release, keys[release.site])


def verify(release: SiteDocument, key: ed25519.Ed25519PublicKey) -> None:
    """Refuse a release that is not signed by this key."""
    from cryptography.exceptions import InvalidSignature

    signature = release.signature
    whose = f"the release of the site {release.site!r} is"
    if signature is None:
        raise ReleaseError(f"{whose} not signed")
    if signature.algorithm != ALGORITHM:
        known = f"only {ALGORITHM} is known"
        raise ReleaseError(f"{whose} signed by {signature.algorithm!r}; {known}")
    if signature.key != fingerprint(key):
        raise ReleaseError(f"{whose} signed by another key")
    try:
        key.verify(base64.b64decode(signature.value, validate=True), _signed_bytes(release))
    except (InvalidSignature, ValueError):
        raise ReleaseError(
            f"the signature of the site {release.site!r} does not fit its release"
        ) from None


def read_keys(folder: StrPath) -> dict[str, ed25519.Ed25519PublicKey]:
    """Read the public keys of a folder: the name of each file is that of its site."""
    _require_cryptography()
    if not isinstance(folder, str | os.PathLike) or not Path(folder).is_dir():
        raise ReleaseError(f"{folder} is not a folder of public keys")
    files = sorted(file for file in Path(folder).glob("*.pem") if file.is_file())
    public = [file for file in files if not file.name.endswith(".private.pem")]
    return {file.stem: _read_key(file, "public") for file in public}


def fingerprint(key: ed25519.Ed25519PublicKey) -> str:
    """Return a short name of a public key: the start of its SHA-256."""
    return "sha256:" + hashlib.sha256(key.public_bytes_raw()).hexdigest()[:32]


def _signed_bytes(release: SiteDocument) -> bytes:
    return canonical(replace(release, signature=None).to_dict())


def read_private(path: StrPath) -> ed25519.Ed25519PrivateKey:
    """Read a private key without a password from a PEM file."""
    key: ed25519.Ed25519PrivateKey = _read_key(path, "private")
    return key


def _read_key(path: StrPath, kind: str) -> Any:
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric import ed25519

    load, expected = {
        "private": (partial(pem.load_pem_private_key, password=None), ed25519.Ed25519PrivateKey),
        "public": (pem.load_pem_public_key, ed25519.Ed25519PublicKey),
    }[kind]
    content = read(path, _MOST_BYTES, ReleaseError)
    try:
        key = load(content)
    except TypeError:
        raise ReleaseError(f"{path} is encrypted; give a key without a password") from None
    except Exception:
        raise ReleaseError(f"{path} is not an Ed25519 {kind} key in PEM") from None
    if not isinstance(key, expected):
        raise ReleaseError(f"{path} is not an Ed25519 {kind} key")
    return key


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that must not exist yet, with its mode from the first moment."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise ReleaseError(f"{path} exists; keys are not overwritten") from None
    except OSError as error:
        raise ReleaseError(f"{path} cannot be written: {error.strerror}") from None


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            'signatures need the package cryptography: pip install "dpeffects[sites]"'
        ) from None
