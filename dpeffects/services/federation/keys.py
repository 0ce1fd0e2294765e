"""Certificates for loopback, and keys for the demo; sites make their own (see app/README.md)."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dpeffects.services.federation.flower import write_secret

_USES = [
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
]
_SIGNS_CERTIFICATES = x509.KeyUsage(
    **dict.fromkeys(_USES, False) | {"key_cert_sign": True, "crl_sign": True}
)


def make_certificates(folder: Path, days: int = 2) -> None:
    """Write a server certificate for loopback and the authority that signed it."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = ec.generate_private_key(ec.SECP384R1())
    server = ec.generate_private_key(ec.SECP384R1())
    issuer, subject = _name("dpeffects loopback authority"), _name("localhost")
    usage = x509.BasicConstraints(ca=True, path_length=0)
    root = _builder(issuer, issuer, authority, days).add_extension(usage, critical=True)
    root = root.add_extension(_SIGNS_CERTIFICATES, critical=True)
    here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = _builder(subject, issuer, server, days)
    leaf = leaf.add_extension(x509.SubjectAlternativeName(here), critical=False)
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    leaf = leaf.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
    )
    for name, builder in (("ca.crt", root), ("server.crt", leaf)):
        certificate = builder.sign(authority, hashes.SHA384())
        (folder / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(folder / "server.key", server, serialization.PrivateFormat.PKCS8)


def make_site_key(folder: Path, site: str) -> tuple[Path, Path]:
    """Write a site's key pair in the form SuperNodes use; return the private and public files."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = folder / f"{site}.key", folder / f"{site}.pub"
    _write_private(private, key, serialization.PrivateFormat.OpenSSH)
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    )
    return private, public


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(identifier, critical=False)
    )


def _write_private(
    path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> None:
    pem = serialization.Encoding.PEM
    write_secret(path, key.private_bytes(pem, form, serialization.NoEncryption()))
