"""Who asks: a fixed token or certificate, a token file that others renew, or a program that logs in.

Programs follow https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins: they are
started when their answer is first needed, some time before it expires (in the background, so that no request waits), when it
has expired all the same, and when the API server does not believe it any more.
"""

import base64
import json
import logging
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kompakt_client.errors import Unreachable
from kompakt_client.kubeconfig import Access, LoginProgram, Pem
from kompakt_client.object_fields import ObjectFields
from kompakt_core.contract import timestamps
from kompakt_core.errors import InvalidInput

_LOG = logging.getLogger(__name__)
PROGRAM_SECONDS: Final = 60.0  # to log in; a person may have to answer something in a browser
PERSON_SECONDS: Final = 600.0  # where it may ask at the terminal
EARLY_SECONDS: Final = 10.0  # before it expires a credential is renewed: clocks differ, and requests take time
AHEAD_SECONDS: Final = 120.0  # before that a login is renewed in the background; watches ask at least each minute
AGAIN_SECONDS: Final = 10.0  # after a background renewal that failed
NO_PEM: Final = Pem()


class Credentials:
    """Fixed ones: headers as given, and at most one certificate."""

    def __init__(self, headers: Mapping[str, str] | None = None, certificate: Pem = NO_PEM, key: Pem = NO_PEM) -> None:
        self._headers, self._pair = dict(headers or {}), (certificate, key)

    def headers(self) -> Mapping[str, str]:
        """For one request."""
        return self._headers

    def certificate(self) -> tuple[Pem, Pem]:
        """The client certificate and its key; both empty where there is none."""
        return self._pair

    def login(self) -> "Login | None":
        """What a request of now is believed by, to be told by `renew` from a later one; None: it never changes."""
        return None

    def renew(self, refused: "Login | None") -> bool:
        """Whether other credentials than those refused may be had at the next call."""
        return False


class TokenFile(Credentials):
    """Read for each request: some 20 us beside a request of milliseconds, and no renewal can be missed."""

    def __init__(self, path: Path, certificate: Pem = NO_PEM, key: Pem = NO_PEM) -> None:
        super().__init__(None, certificate, key)
        self._path = path
        path.read_text()  # missing: said at the start, not at the first request

    def headers(self) -> Mapping[str, str]:
        """For one request."""
        return bearer(self._path.read_text().strip())


@dataclass(frozen=True, slots=True)
class Login:
    """What a program has answered; `until` in seconds since 1970, None: for as long as this process runs."""

    token: str = ""
    certificate: Pem = NO_PEM
    key: Pem = NO_PEM
    until: float | None = None


def in_background(work: Callable[[], None]) -> None:
    """In a daemon thread: a program that hangs must not hold the process back."""
    threading.Thread(target=work, name="log in", daemon=True).start()


class ExecCredentials(Credentials):
    """A program that logs in; its answer is kept until it expires, and renewed before. It asks a person only when it must."""

    def __init__(
        self,
        program: LoginProgram,
        folder: Path,
        certificate: Pem = NO_PEM,
        key: Pem = NO_PEM,
        *,
        clock: Callable[[], float] = time.time,
        start: Callable[[Callable[[], None]], None] = in_background,
    ) -> None:
        super().__init__(None, certificate, key)
        self._program, self._folder, self._clock = program, folder, clock
        self._lock = threading.Lock()  # several threads that need a login wait for one
        self._login: Login | None = None
        self._start, self._ahead_at = start, math.inf

    def headers(self) -> Mapping[str, str]:
        """For one request. Raises Unreachable where the program fails."""
        return bearer(self._current().token)

    def certificate(self) -> tuple[Pem, Pem]:
        """The one that the program gave, else that of the kubeconfig. Raises Unreachable where the program fails."""
        login = self._current()
        return (login.certificate, login.key) if login.certificate else super().certificate()

    def login(self) -> Login:
        """The one of now. Raises Unreachable where the program fails."""
        return self._current()

    def renew(self, refused: Login | None) -> bool:
        """The next request asks the program again; once for all threads whose requests went with the same login."""
        with self._lock:
            if self._login is refused:
                self._login = None
        return True

    def _current(self) -> Login:
        with self._lock:
            login, now = self._login, self._clock()
            if login is None or not still_good(login, now):
                return self._keep(run(self._program, self._folder))
            if now >= self._ahead_at and not self._program.interactive:
                self._ahead_at = math.inf  # one at a time
                self._start(lambda: self._renew_ahead(login))
            return login

    def _keep(self, login: Login) -> Login:
        self._login, self._ahead_at = login, ahead_at(login, self._clock())
        return login

    def _renew_ahead(self, before: Login) -> None:
        """Not under the lock while the program runs: requests go on with the login of before."""
        try:
            login = run(self._program, self._folder)
        except Unreachable as error:
            _LOG.warning("cannot renew a login ahead of its end: %s", error)
            with self._lock:
                if self._login is before:  # else there is a newer one, with a time of its own
                    self._ahead_at = self._clock() + AGAIN_SECONDS
            return
        with self._lock:
            if self._login is before:  # else it had to be renewed meanwhile
                self._keep(login)


def still_good(login: Login, now: float) -> bool:
    """Whether a login may be used for one more request."""
    return login.until is None or now < login.until - EARLY_SECONDS


def ahead_at(login: Login, now: float) -> float:
    """When to renew a login of now in the background: early, but not in the first half of its life."""
    if login.until is None:
        return math.inf
    last = login.until - EARLY_SECONDS
    return max(last - AHEAD_SECONDS, (now + last) / 2)


def run(program: LoginProgram, folder: Path) -> Login:
    """Start the program and read what it says. Raises Unreachable: it may succeed another time."""
    # As kubectl does it: a relative path with a slash begins at the kubeconfig, a bare name is looked up.
    command = str(folder / program.command) if "/" in program.command else program.command
    said = {
        "apiVersion": program.api_version,
        "kind": "ExecCredential",
        "spec": {**program.cluster_info, "interactive": program.interactive},
    }
    environment = {**os.environ, **program.environment, "KUBERNETES_EXEC_INFO": json.dumps(said)}
    try:
        done = subprocess.run(
            [command, *program.arguments],
            env=environment,
            stdin=None if program.interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if program.interactive else subprocess.PIPE,  # where it says what the person shall do
            timeout=PERSON_SECONDS if program.interactive else PROGRAM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = f"; {program.install_hint}" if program.install_hint else ""
        raise Unreachable(f"cannot log in with {command}: {error}{hint}") from error
    if done.returncode:
        raise Unreachable(f"cannot log in: {command} ended with {done.returncode}: {_last_line(done.stderr or b'')}")
    try:
        return read_login(json.loads(done.stdout), program.api_version)
    except (ValueError, InvalidInput) as error:
        raise Unreachable(f"cannot log in: {command} answered no ExecCredential: {error}") from error


def read_login(document: object, api_version: str) -> Login:
    """What a program has written. Raises InvalidInput naming the field, never with what stands in it."""
    top = ObjectFields(document, "")
    if top.text("apiVersion") != api_version:
        top.refuse("apiVersion", f"expected {api_version}")
    status = top.inner("status")
    token, certificate, key = (status.text(name, "") for name in ("token", "clientCertificateData", "clientKeyData"))
    if bool(certificate) != bool(key) or not (token or certificate):
        status.refuse("token", "expected a token, or clientCertificateData and clientKeyData")
    text = status.text("expirationTimestamp", "")
    until = timestamps.seconds(text)
    if text and until is None:
        status.refuse("expirationTimestamp", "expected a time such as 2026-01-31T12:00:00Z")
    return Login(token, Pem(text=certificate), Pem(text=key), until)


def credentials_of(access: Access, folder: Path) -> Credentials:
    """What a kubeconfig's user is believed by; a token file, a token, a program, a password: the first counts."""
    pair = (access.certificate, access.key)
    if access.token_file:
        return TokenFile(folder / access.token_file, *pair)
    if access.token:
        return Credentials(bearer(access.token), *pair)
    if access.program is not None:
        return ExecCredentials(access.program, folder, *pair)
    return Credentials(basic(access.username, access.password), *pair)


def bearer(token: str) -> dict[str, str]:
    """The header for a token; none for an empty one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def basic(username: str, password: str) -> dict[str, str]:
    """The header for a name with a password, as some proxies before API servers want it; none for an empty name."""
    both = base64.b64encode(f"{username}:{password}".encode()).decode()
    return {"Authorization": f"Basic {both}"} if username else {}


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
