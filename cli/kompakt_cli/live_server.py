"""A server of this machine alone that passes the live page's requests on, with a token that the browser never sees.

Whoever can reach 127.0.0.1 is not yet the user: other programs, other users and pages of the internet in the same browser can as
well. So the address that is printed has a secret in it, which becomes a cookie; a request needs it, and names this server as its
Host, which a page of another site under a name that leads here does not.
"""

import hmac
import json
import re
import secrets
import sys
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from kompakt_core.errors import KompaktError

if TYPE_CHECKING:
    from kompakt_client.requests import Answer as HttpAnswer
    from kompakt_client.transport import LineStream

Passing = Callable[[str, str, bytes | None, float], "LineStream | HttpAnswer"]
SILENCE_SECONDS: Final = 45.0  # the extender gives a sign of life every 15
MOST_BODY: Final = 256 << 10
_GET: Final = re.compile(r"/ui/[A-Za-z0-9.-]*|/v1alpha1/[A-Za-z0-9./-]+")
_POST: Final = "/v1alpha1/what-if"
_EVENTS: Final = "/v1alpha1/events"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ENTRANCE: Final = (
    b'<!doctype html><html lang="en"><meta charset="utf-8"><title>kompakt</title>'
    b'<meta http-equiv="refresh" content="0;url=/ui/"><a href="/ui/">kompakt</a></html>'
)


class LiveServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1. `passing` sends a request to the extender's Service."""

    daemon_threads = True

    def __init__(self, passing: Passing, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), LivePageHandler)
        self.passing, self.secret, self._once = passing, secrets.token_urlsafe(32), ""
        self.cookie = f"kompakt-{self.server_port}"

    @property
    def address(self) -> str:
        """For the user, and for nobody else."""
        return f"http://127.0.0.1:{self.server_port}/?key={self.secret}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a browser that means this server calls it."""
        return f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"

    def address_once(self) -> str:
        """For a browser's command line, which all users of this machine can read: its key lets in once."""
        self._once = secrets.token_urlsafe(32)
        return f"http://127.0.0.1:{self.server_port}/?key={self._once}"

    def is_secret(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.secret.encode())

    def lets_in(self, key: str) -> bool:
        """Is this the key of an address that was given out?"""
        if self._once and hmac.compare_digest(key.encode(), self._once.encode()):
            self._once = ""
            return True
        return self.is_secret(key)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is none."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class LivePageHandler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: LiveServer
    server_version, sys_version = "kompakt", ""
    protocol_version = "HTTP/1.1"
    timeout = 120.0

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if not self._named_right():
            self._refuse(403, f"this server is {self.server.hosts[0]}")
        elif path == "/" and self.server.lets_in("".join(query.get("key", []))):
            self._enter()
        elif not self._known():
            self._refuse(403, "open the address that kompakt ui has printed, with its key")
        elif _GET.fullmatch(path) is None or ".." in path:
            self._refuse(404, "there is no such page")
        else:
            self._pass("GET", None)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (self._named_right() and self._known()):
            self._refuse(403, "open the address that kompakt ui has printed, with its key")
        elif self.path != _POST:
            self._refuse(404, "there is no such question")
        elif not length.isdecimal() or len(length) > 7 or int(length) > MOST_BODY:
            self._refuse(413, f"a question has at most {MOST_BODY >> 10} KiB, and says how many")
        else:
            self._pass("POST", self.rfile.read(int(length)))

    def _named_right(self) -> bool:
        """Not by a name that somebody made lead to this machine, and not from another site's page."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "none")
        of_ours = origin is None or origin.removeprefix("http://") in self.server.hosts
        entering = urlsplit(self.path).path == "/"  # a link to it may stand anywhere, and gives nothing without its key
        return self.headers.get("Host") in self.server.hosts and of_ours and (entering or site in ("none", "same-origin"))

    def _known(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return found is not None and self.server.is_secret(found.value)

    def _enter(self) -> None:
        """The secret becomes a cookie. Not by a redirect: a Strict cookie would not be sent where the link stood elsewhere."""
        cookie = f"{self.server.cookie}={self.server.secret}; Path=/; HttpOnly; SameSite=Strict"
        self._begin(200, "text/html; charset=utf-8", {"Set-Cookie": cookie, "Content-Length": str(len(_ENTRANCE))})
        self.wfile.write(_ENTRANCE)

    def _pass(self, method: str, body: bytes | None) -> None:
        from kompakt_client.transport import LineStream

        try:
            answer = self.server.passing(method, self.path, body, SILENCE_SECONDS)
        except KompaktError as error:
            self._refuse(502, str(error))
            return
        if isinstance(answer, LineStream):
            self._stream(answer)
        else:
            kind = next((value for key, value in answer.headers.items() if key.lower() == "content-type"), "application/json")
            self._begin(answer.status, kind, {"Content-Length": str(len(answer.body))})
            self.wfile.write(answer.body)

    def _stream(self, answer: "LineStream") -> None:
        """Each part as soon as it is there, until either side ends."""
        self.close_connection = True
        try:
            self._begin(200, answer.content_type or "application/octet-stream", {"Connection": "close"})
            for part in answer.chunks():
                self.wfile.write(part)
        except (KompaktError, OSError):  # the page sees the end of its answer, and asks again
            answer.stop()

    def _refuse(self, status: int, why: str) -> None:
        body = json.dumps({"detail": why}).encode()
        self.close_connection = True
        self._begin(status, "application/json", {"Content-Length": str(len(body)), "Connection": "close"})
        self.wfile.write(body)

    def _begin(self, status: int, kind: str, more: dict[str, str]) -> None:
        safe = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Cache-Control": "no-store"} | safe | more).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the secret stands in the first line, and a terminal's scrollback is no place for it twice."""
