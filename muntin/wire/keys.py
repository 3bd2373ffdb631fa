"""Who may talk to whom: certificates for TLS, and the token that pipelines hold.

A folder has all of it: `ca.pem`, the certificate of those who sign; `NAME.pem` and `NAME.key`, the
certificate and key of an agent or of the pipeline; and `token`. `muntin keys` makes one; files of
another authority may lie there in their place.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from muntin.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

PIPELINE = "pipeline"
_LEAST_TOKEN = 16  # characters
_VALID = timedelta(days=825)  # as long as certificates of servers are taken


@dataclass(frozen=True)
class Keys:
    """What one side of a connection needs. Without a certificate of its own it shows none."""

    token: str = field(repr=False)
    ca: bytes
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)


def read_keys(folder: Path, name: str, required: bool = False) -> Keys:
    """The keys of one party; if `required`, it has to have a certificate of its own."""
    own = folder / f"{name}.pem", folder / f"{name}.key"
    if required and not all(path.exists() for path in own):
        raise InputError(
            f"{folder} has no {name}.pem and {name}.key; `muntin keys {folder} {name}` makes them"
        )
    certificate, key = (_read(path) if path.exists() else b"" for path in own)
    token = _read(folder / "token").decode(errors="replace").strip()
    if len(token) < _LEAST_TOKEN:
        raise InputError(f"{folder / 'token'}: a token has {_LEAST_TOKEN} characters or more")
    return Keys(token, _read(folder / "ca.pem"), certificate, key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def make_keys(folder: Path, names: Sequence[str]) -> list[Path]:
    """Makes what a folder of keys does not have yet; returns the files that are new.

    A name may be followed by the hosts of its certificate: `web01=web01.example.org,10.0.0.5`.
    """
    wrong = next((text for text in names if not _is_name(text.partition("=")[0])), None)
    if wrong is not None:
        raise InputError(f"'{wrong}' is no name of an agent, which is also that of its files")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _made(folder, names)
    except OSError as error:
        raise InputError(f"keys cannot be made in {folder}: {error.strerror or error}") from error


def _is_name(name: str) -> bool:
    return bool(name.strip()) and "/" not in name


def _made(folder: Path, names: Sequence[str]) -> list[Path]:
    made = []
    authority = folder / "ca.pem", folder / "ca.key"
    if not authority[0].exists():
        made += _write(authority, *_authority())
    if not (folder / "token").exists():
        made += [_secret(folder / "token", secrets.token_urlsafe(32).encode() + b"\n")]
    for text in names:
        name, _, hosts = text.partition("=")
        own = folder / f"{name}.pem", folder / f"{name}.key"
        if not own[0].exists():
            signed = _signed(name, hosts.split(",") if hosts else [name], *map(_read, authority))
            made += _write(own, *signed)
    return made


def _authority() -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), _named("muntin")
    builder = _certificate(name, name, key).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    return _pem(builder, key, key)


def _signed(name: str, hosts: Sequence[str], ca: bytes, ca_key: bytes) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    signer = x509.load_pem_x509_certificate(ca)
    signing = load_pem_private_key(ca_key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    called = [_called(host) for host in (*hosts, "localhost", "127.0.0.1")]
    builder = _certificate(_named(name), signer.subject, key).add_extension(
        x509.SubjectAlternativeName(called), critical=False
    )
    return _pem(builder, key, signing)


def _called(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _named(name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _certificate(
    name: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _VALID)
    )


def _pem(
    builder: x509.CertificateBuilder,
    key: EllipticCurvePrivateKey,
    signing: EllipticCurvePrivateKey,
) -> tuple[bytes, bytes]:
    """A certificate and its key, as files have them."""
    from cryptography.hazmat.primitives import hashes, serialization

    certificate = builder.sign(signing, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(paths: tuple[Path, Path], certificate: bytes, key: bytes) -> list[Path]:
    paths[0].write_bytes(certificate)
    return [paths[0], _secret(paths[1], key)]


def _secret(path: Path, data: bytes) -> Path:
    """A file that nobody else may read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return path
