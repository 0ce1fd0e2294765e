"""Signatures: what the centre refuses."""

import base64
import copy
import os
import stat
import subprocess
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization as to
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from dpeffects.documents import canonical, checksum
from dpeffects.errors import MissingExtraError, ReleaseError
from dpeffects.services.sites import SiteRelease, combine
from dpeffects.services.sites.signing import make_keys, read_keys, sign
from tests.cases import each
from tests.sites.examples import release


@pytest.fixture
def keys(tmp_path):
    """A folder of public keys for the centre; the private ones beside it."""
    folder = tmp_path / "keys"
    folder.mkdir()
    for site in ("North", "South"):
        private, public = make_keys(site, tmp_path)
        public.rename(folder / public.name)
        assert private.name == f"{site}.private.pem"
    return folder


def signed(keys, site="North", key=None, **changes):
    return sign(release(site, **changes), keys.parent / f"{key or site}.private.pem")


def test_signed_releases_are_combined(keys):
    sites = [signed(keys, "North"), signed(keys, "South")]
    assert combine(sites, public_keys=keys).estimate == combine(sites).estimate
    again = [SiteRelease.from_json(site.to_json()) for site in sites]
    assert again == sites
    combine(again, public_keys=str(keys))


def test_signature_is_that_of_the_canonical_text(keys):
    made = signed(keys)
    block = made.to_dict()["signature"]
    assert block["algorithm"] == "ed25519"
    body = {k: v for k, v in made.to_dict().items() if k != "signature"}
    read_keys(keys)["North"].verify(base64.b64decode(block["value"]), canonical(body))


def forged(keys, **changes):
    """A release of North with another signature."""
    made = signed(keys)
    return replace(made, signature=replace(made.signature, **changes))


def under_the_right_name(keys):
    right, wrong = signed(keys, "South"), signed(keys, "South", key="North")
    return replace(wrong, signature=replace(wrong.signature, key=right.signature.key))


@each(
    ("made", "words"),
    [
        (lambda keys: release("South"), "'South' is not signed"),
        (lambda keys: signed(keys, "West", key="North"), r"'West' is not known.*North, South"),
        (lambda keys: signed(keys, "../keys/North", key="North"), "is not known"),
        (lambda keys: signed(keys, "South", key="North"), "'South' is signed by another key"),
        (under_the_right_name, "does not fit"),
        (lambda keys: replace(signed(keys), n=999), "does not fit"),
        (lambda keys: replace(signed(keys), request="other"), "does not fit"),
        (lambda keys: replace(signed(keys), method="x"), "does not fit"),
        (lambda keys: replace(signed(keys), formula="y ~ t | z"), "does not fit"),
        (lambda keys: forged(keys, value="!!!"), "does not fit"),
        (lambda keys: forged(keys, value="AAAA"), "does not fit"),
        (lambda keys: forged(keys, value="é"), "does not fit"),
        (lambda keys: forged(keys, value="A" * 88), "does not fit"),
        (lambda keys: forged(keys, algorithm="none"), "only ed25519"),
    ],
)
def test_what_is_not_signed_as_it_should_is_refused(keys, made, words):
    with pytest.raises(ReleaseError, match=words):
        combine([made(keys)], public_keys=keys)


def test_a_changed_document_with_a_new_checksum_is_refused(keys):
    document = copy.deepcopy(signed(keys).to_dict())
    document["released"]["value"] = 9.0
    document["checksum"] = checksum(document)
    assert SiteRelease.from_dict(document).estimate == 9.0
    with pytest.raises(ReleaseError, match="does not fit"):
        combine([document], public_keys=keys)


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "x",
        {},
        [],
        {"algorithm": "ed25519", "key": "k"},
        {"algorithm": "ed25519", "key": 3, "value": ""},
    ],
)
def test_a_broken_signature_block_is_not_read(signature):
    with pytest.raises(ReleaseError, match="signature"):
        SiteRelease.from_dict({**release().to_dict(), "signature": signature})


# --- keys ----------------------------------------------------------------------------------------


def test_keys_are_private_and_not_overwritten(tmp_path):
    private, public = make_keys("North", tmp_path)
    assert stat.S_IMODE(os.stat(private).st_mode) == 0o600
    before = private.read_bytes(), public.read_bytes()
    with pytest.raises(ReleaseError, match="not overwritten"):
        make_keys("North", tmp_path)
    assert (private.read_bytes(), public.read_bytes()) == before


@pytest.mark.parametrize("site", ["../North", "a/b", "..", ".", "", "a\0b", 3])
def test_names_that_are_not_file_names(tmp_path, site):
    with pytest.raises(ReleaseError):
        make_keys(site, tmp_path)


def test_folder_that_is_not_there(tmp_path):
    make_keys("North", tmp_path / "new")
    assert (tmp_path / "new" / "North.private.pem").is_file()
    with pytest.raises(ReleaseError, match="cannot be written"):
        make_keys("North", tmp_path / "new" / "North.pem" / "no")
    with pytest.raises(ReleaseError, match="not a folder of public keys"):
        combine([release()], public_keys=tmp_path / "no")


def pem(key, password=None):
    how = to.BestAvailableEncryption(password) if password else to.NoEncryption()
    return key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, how)


def test_files_that_are_not_keys(keys, tmp_path):
    new = ed25519.Ed25519PrivateKey.generate
    cases = {
        "missing": (None, "cannot be read"),
        "text": (b"hello", "not an Ed25519 private key"),
        "curve": (pem(ec.generate_private_key(ec.SECP256R1())), "not an Ed25519 private key"),
        "locked": (pem(new(), b"secret"), "encrypted"),
        "public": ((keys / "North.pem").read_bytes(), "not an Ed25519 private key"),
    }
    for name, (content, words) in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ReleaseError, match=words):
            sign(release(), path)
    (keys / "East.pem").write_bytes(pem(new()))
    with pytest.raises(ReleaseError, match=r"East\.pem is not an Ed25519 public key"):
        combine([signed(keys)], public_keys=keys)


def test_private_keys_in_the_folder_are_not_read(tmp_path):
    make_keys("North", tmp_path)
    assert list(read_keys(tmp_path)) == ["North"]


def test_openssl_reads_the_keys(tmp_path):
    private, public = make_keys("North", tmp_path)
    for command in (["pkey", "-in", private], ["pkey", "-pubin", "-in", public]):
        try:
            done = subprocess.run(["openssl", *command, "-noout"], capture_output=True)
        except FileNotFoundError:
            pytest.skip("openssl is not installed")
        assert done.returncode == 0


def test_without_cryptography_the_extra_is_named(without, tmp_path):
    without("cryptography")
    for call in (
        lambda: make_keys("North", tmp_path),
        lambda: sign(release(), tmp_path / "x"),
        lambda: combine([release()], public_keys=tmp_path),
    ):
        with pytest.raises(MissingExtraError, match=r'pip install "dpeffects\[sites\]"'):
            call()
