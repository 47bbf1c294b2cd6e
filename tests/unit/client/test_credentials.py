"""Programs that log in: when they are started, and what of their answers is believed."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kompakt_client.credentials import AGAIN_SECONDS, AHEAD_SECONDS, EARLY_SECONDS, ExecCredentials, ahead_at, read_login
from kompakt_client.credentials import Login as Answered
from kompakt_client.errors import Unreachable
from kompakt_client.kubeconfig import LoginProgram, Pem
from kompakt_core.errors import InvalidInput

V1 = "client.authentication.k8s.io/v1"
AN_HOUR_LATER = "1970-01-12T14:46:40Z"  # than the clock's beginning
SCRIPT = """import json, os, sys
from pathlib import Path
runs = Path(__file__).with_name("runs")
runs.write_text((runs.read_text() if runs.exists() else "") + os.environ["KUBERNETES_EXEC_INFO"] + "\\n")
print(Path(__file__).with_name("answer").read_text())
sys.exit(int(os.environ.get("EXIT", "0")))
"""


class Login:
    """A program in a folder, which answers what the test wrote last, a clock, and what is to be done in the background."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder, self.now = folder, 1_000_000.0
        (folder / "login.py").write_text(SCRIPT)
        program = LoginProgram(sys.executable, V1, (str(folder / "login.py"),), **more)
        self.background: list[Callable[[], None]] = []
        self.credentials = ExecCredentials(program, folder, clock=lambda: self.now, start=self.background.append)

    def answer(self, **status: str) -> None:
        document = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
        (self.folder / "answer").write_text(json.dumps(document))

    @property
    def token(self) -> str:
        return self.credentials.headers()["Authorization"].removeprefix("Bearer ")

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "runs").read_text().splitlines()]


def test_a_login_is_kept_until_shortly_before_it_expires(tmp_path: Path) -> None:
    login = Login(tmp_path)
    login.answer(token="first", expirationTimestamp=AN_HOUR_LATER)
    assert login.token == "first"
    login.answer(token="second")
    login.now += 3600.0 - EARLY_SECONDS - 1
    assert login.token == "first"
    login.now += 1
    assert login.token == "second"
    login.now += 1e9
    assert login.token == "second"
    assert len(login.runs) == 2


def test_a_login_is_renewed_in_the_background_so_that_no_request_waits(tmp_path: Path) -> None:
    login = Login(tmp_path)
    login.answer(token="first", expirationTimestamp=AN_HOUR_LATER)
    assert login.token == "first"
    login.answer(token="second")
    login.now += 3600.0 - EARLY_SECONDS - AHEAD_SECONDS
    assert [login.token, login.token] == ["first", "first"]
    [renewal] = login.background
    renewal()
    login.now += 3600.0
    assert login.token == "second"
    assert len(login.runs) == 2


def test_a_background_renewal_that_fails_is_tried_again_and_one_that_comes_late_changes_nothing(tmp_path: Path) -> None:
    login = Login(tmp_path)
    login.answer(token="first", expirationTimestamp=AN_HOUR_LATER)
    assert login.token == "first"
    (tmp_path / "answer").unlink()
    login.now += 3500.0
    assert login.token == "first"
    login.background.pop()()
    assert (login.token, login.background) == ("first", [])
    login.now += AGAIN_SECONDS
    assert (login.token, len(login.background)) == ("first", 1)
    login.answer(token="second")
    assert login.credentials.renew(login.credentials.login())
    assert login.token == "second"
    login.answer(token="late")
    login.background.pop()()
    assert login.token == "second"


@pytest.mark.parametrize(
    ("until", "at"),
    [(None, math.inf), (3610.0, 3480.0), (110.0, 50.0)],
    ids=["a login for ever is never renewed", "two minutes ahead", "a short login is used for half of its time"],
)
def test_when_a_login_is_renewed_ahead(until: float | None, at: float) -> None:
    assert ahead_at(Answered(until=until), 0.0) == at


def test_a_program_that_asks_a_person_does_so_only_when_it_must(tmp_path: Path) -> None:
    login = Login(tmp_path, interactive=True)
    login.answer(token="first", expirationTimestamp=AN_HOUR_LATER)
    assert login.token == "first"
    login.now += 3500.0
    assert (login.token, login.background) == ("first", [])


def test_a_login_that_the_server_does_not_believe_is_asked_for_again(tmp_path: Path) -> None:
    login = Login(tmp_path)
    login.answer(token="first")
    assert login.token == "first"
    login.answer(token="second")
    refused = login.credentials.login()
    assert login.credentials.renew(refused)
    assert login.token == "second"
    assert login.credentials.renew(refused), "of another thread, whose request went with the same login"
    assert login.token == "second"
    assert len(login.runs) == 2


def test_a_program_may_answer_with_a_certificate(tmp_path: Path) -> None:
    login = Login(tmp_path)
    login.answer(clientCertificateData="CERT", clientKeyData="KEY")
    assert login.credentials.certificate() == (Pem(text="CERT"), Pem(text="KEY"))
    assert login.credentials.headers() == {}
    assert len(login.runs) == 1


def test_a_program_hears_of_the_cluster_where_it_wants_to(tmp_path: Path) -> None:
    login = Login(tmp_path, cluster_info={"cluster": {"server": "https://a"}})
    login.answer(token="t")
    login.credentials.headers()
    said = {"apiVersion": V1, "kind": "ExecCredential", "spec": {"cluster": {"server": "https://a"}, "interactive": False}}
    assert login.runs == [said]


def test_a_program_that_fails_is_named_and_tried_again(tmp_path: Path) -> None:
    login = Login(tmp_path, environment={"EXIT": "3"})
    login.answer(token="secret")
    for _ in range(2):
        with pytest.raises(Unreachable, match="ended with 3") as failed:
            login.credentials.headers()
        assert "secret" not in str(failed.value)
    assert len(login.runs) == 2


def test_a_program_that_is_not_there_is_named_with_its_hint(tmp_path: Path) -> None:
    program = LoginProgram("no-such-program", V1, install_hint="see example.org")
    with pytest.raises(Unreachable, match=r"no-such-program.*see example.org"):
        ExecCredentials(program, tmp_path).headers()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "expected an object"),
        ({}, "apiVersion: is required"),
        ({"apiVersion": "v2"}, f"apiVersion: expected {V1}"),
        ({"apiVersion": V1}, "status.token: expected a token"),
        ({"apiVersion": V1, "status": {"clientKeyData": "secret"}}, "status.token: expected a token"),
        (
            {"apiVersion": V1, "status": {"token": "secret", "expirationTimestamp": "soon"}},
            "expirationTimestamp: expected a time",
        ),
    ],
)
def test_an_answer_that_is_no_login_is_refused_without_its_secrets(document: object, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_login(document, V1)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
