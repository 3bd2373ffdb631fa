"""Who may ask a service: everybody on this machine, or those who have its token."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from muntin.errors import InputError

OFF = "off"
DEFAULT = "127.0.0.1:0"
_LEAST = 16  # characters of a token
_LOCAL = {"localhost", "127.0.0.1", "[::1]"}


@dataclass(frozen=True)
class Access:
    """Where a service listens; port 0 is any that is free. Without a token, on loopback alone."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    file: Path | None = None  # that has the token

    def admits(self, authorization: str) -> bool:
        """Whether a header has the token; how long that takes tells nothing of it."""
        if self.token is None:
            return True
        kind, _, given = authorization.partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return same and kind.lower() == "bearer"

    def forged(self, host: str, origin: str | None, site: str | None) -> str | None:
        """Why a request may be some web page's, sent by the browser of who opened it; or None.

        A page can have a name of its own point at this machine, so Host is looked at, too. Who has
        the token is no such page.
        """
        if self.token is not None:
            return None
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.lower() not in _LOCAL | {self.host, f"[{self.host}]"}:
            return f"it is for host '{host[:100]}', which is no name of this machine's own"
        if origin is not None and origin.lower() != f"http://{host}".lower():
            return f"it comes from a web page of {origin[:100]}"
        if site is not None and site.lower() not in ("same-origin", "none"):
            return "it comes from a web page of another site"
        return None


def access_of(control: str, file: Path | None) -> Access | None:
    """What `--control` and `--control-token` say; None is no service."""
    if control == OFF:
        if file is not None:
            raise InputError("--control-token is for a service, and --control is off")
        return None
    host, _, port = control.rpartition(":")
    try:
        if not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ValueError
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        raise InputError(
            f"--control {control} is no address; say for example 127.0.0.1:7080, or off"
        ) from None
    token = None if file is None else token_in(file)
    if token is None and not address.is_loopback:
        raise InputError(
            f"--control {control} is open to others, who could change jobs and read results; give "
            "--control-token FILE with a secret, or 127.0.0.1:PORT"
        )
    return Access(str(address), int(port), token, None if file is None else file.absolute())


def token_in(file: Path) -> str:
    """The token that a file has: one line of visible characters."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"{file}, which has the token, cannot be read: {reason}") from error
    if len(token) < _LEAST or not all("!" <= char <= "~" for char in token):
        make = f"for example: openssl rand -hex 32 > {file}"
        raise InputError(
            f"{file} has no token: that is one line of at least {_LEAST} letters, digits or signs; "
            f"{make}"
        )
    return token
