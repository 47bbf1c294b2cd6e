"""`helm test` without Helm and kubelet: its program with its account and rights, as the chart has them, on a real API server."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster.replacing import end_operator
from tools.kube.parts import NAMESPACE
from tools.kube.session import ClusterSession

NAME = "kompakt-check"


@pytest.fixture(scope="module")
def check(kompakt: ClusterSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The command of the chart's test pod, with the account's folder and the API server's address of this machine."""
    hooks = [d for d in kompakt.parts.chart or [] if d["metadata"]["name"] == NAME]
    pod: dict[str, Any] = next(hook for hook in hooks if hook["kind"] == "Pod")
    kompakt.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(hook for hook in hooks if hook is not pod))
    folder: Path = tmp_path_factory.mktemp("account")
    (folder / "token").write_text(kompakt.kubectl("create", "token", NAME, f"--namespace={NAMESPACE}"))
    (folder / "ca.crt").write_bytes(Path(kompakt.plane.keys.authority.certificate_file).read_bytes())
    _, *flags, _, _, namespace, operator, scheduler = pod["spec"]["containers"][0]["command"]
    yield [sys.executable, *flags, kompakt.plane.addresses.server, str(folder), namespace, operator, scheduler]
    kompakt.kubectl("delete", "role,rolebinding,serviceaccount", NAME, f"--namespace={NAMESPACE}")


def test_it_says_who_holds_the_leases(check: list[str]) -> None:
    done = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["Lease kompakt-operator", "Lease kompakt-scheduler", lines[2]]
    assert lines[2] == "kompakt.dev/v1alpha1 is served"


def test_right_after_an_install_it_waits_until_an_operator_is_active(kompakt: ClusterSession, check: list[str]) -> None:
    end_operator(kompakt)
    waiting = subprocess.Popen(check, stdout=subprocess.PIPE, text=True)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(5)
    finally:
        kompakt.start(kompakt.parts.operator("operator-0"))
    assert "Lease kompakt-operator: held by operator-0" in waiting.communicate(timeout=120)[0]
    assert waiting.returncode == 0


def test_it_fails_with_a_sentence_where_nobody_comes(check: list[str]) -> None:
    impatient = [word.replace("PATIENCE_SECONDS = 180.0", "PATIENCE_SECONDS = 0.0") for word in check]
    done = subprocess.run([*impatient, "another-lease"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "another-lease" in done.stderr, "the account may not even ask for it"
