"""What a node finds out about NVIDIA_VISIBLE_DEVICES, and what it then offers."""

import json
import os
import signal
import subprocess
import sys

import pytest

from kompakt_device_plugin.advertisement import NodeReading, advertise
from kompakt_device_plugin.cdi import Cdi, NodeCdi
from kompakt_device_plugin.isolation import SETTING, Isolation, IsolationLevel, NodeIsolation
from kompakt_device_plugin.isolation_probe import shown_gpus, write
from kompakt_device_plugin.report import conditions_of
from tests.support.device_plugin.pods import GRAPH
from tests.support.device_plugin.whole import Ailing

NODE = {"metadata": {"name": "node-1", "uid": "uid-node"}}
SOURCE = Ailing(GRAPH)
STRICT = IsolationLevel.STRICT
OPEN = f"{SETTING} = true\n"
SHUT = f'{SETTING} = false\n[nvidia-container-runtime]\nmode = "legacy"\n'


@pytest.fixture
def world(tmp_path):
    """Folders of a node: what the probe was shown as /dev, what it wrote, the toolkit's."""
    for name in ("dev", "probe", "toolkit"):
        (tmp_path / name).mkdir()
    return tmp_path


def asked(world, *files):
    """The probe ran in a container with these device files."""
    for name in ("null", "nvidiactl", "nvidia-uvm", *files):
        (world / "dev" / name).touch()
    write(world / "probe" / "shown.json", world / "dev")


def look(world, level=IsolationLevel.DEFAULT, toolkit=None):
    if toolkit is not None:
        (world / "toolkit" / "config.toml").write_text(toolkit)
    found = NodeIsolation(level, world / "probe" / "shown.json", world / "toolkit")()
    return found.isolated, found.reason, found.message


def test_who_asked_and_was_shown_none_stands_for_all(world):
    asked(world)
    for toolkit in (None, SHUT):
        assert look(world, toolkit=toolkit)[:2] == (True, "VariableRefused")


def test_who_asked_and_was_shown_gpus_shows_the_hole(world):
    asked(world, "nvidia1", "nvidia10")
    isolated, reason, said = look(world, toolkit=SHUT)
    assert (isolated, reason) == (False, "VariableHonoured")
    assert "is shown nvidia1, nvidia10 here" in said
    assert f"set {SETTING} = false" in said


@pytest.mark.parametrize("toolkit", [OPEN, "", "disable-require = true\n", f'{SETTING} = "no"\n'])
def test_a_toolkit_that_does_not_refuse_the_variable_shows_it_too(world, toolkit):
    asked(world)
    isolated, reason, said = look(world, toolkit=toolkit)
    assert (isolated, reason) == (False, "VariableHonoured")
    assert "under every handler of NVIDIA's runtime" in said


def test_a_configuration_that_cannot_be_read_is_no_answer(world):
    asked(world)
    isolated, reason, said = look(world, toolkit="= broken")
    assert (isolated, reason) == (None, "NotProbed")
    assert "config.toml cannot be read" in said


@pytest.mark.parametrize("text", [None, "", "{", "5", "\udcff"])
def test_a_probe_that_said_nothing_is_no_answer(world, text):
    if text is not None:
        (world / "probe" / "shown.json").write_bytes(text.encode(errors="surrogateescape"))
    assert look(world)[:2] == (None, "NotProbed")


def test_a_container_that_asked_itself_looks_into_its_own_dev(world):
    assert NodeIsolation(probe=world / "dev")().isolated is True
    (world / "dev" / "nvidia0").touch()
    assert NodeIsolation(probe=world / "dev")().isolated is False


def test_where_nobody_wants_to_know_nothing_is_said():
    assert NodeIsolation()() is None
    assert NodeIsolation(STRICT)().isolated is None


def test_the_probe_writes_what_it_sees_and_waits_for_its_end(tmp_path):
    file = tmp_path / "shown.json"
    probe = subprocess.Popen([sys.executable, "-m", "kompakt_device_plugin.isolation_probe", str(file)])
    try:
        while not file.exists():
            assert probe.poll() is None
        assert json.loads(file.read_text()) == shown_gpus()
    finally:
        os.kill(probe.pid, signal.SIGTERM)
        probe.wait()


def found(isolated, strict):
    reason = {True: "VariableRefused", False: "VariableHonoured", None: "NotProbed"}[isolated]
    return Isolation(isolated, reason, "words", strict)


@pytest.mark.parametrize("isolated", [True, False, None])
def test_by_default_a_node_offers_its_gpus_and_says_what_it_knows(isolated):
    seen = advertise(NodeReading(NODE), GRAPH, SOURCE, isolation=found(isolated, strict=False))
    assert (seen.offered, seen.problem) == (GRAPH, None)
    told = {one.type: one for one in conditions_of(seen.report)}
    assert told["Isolated"].status is isolated
    assert (seen.warning is not None) is (isolated is False)


@pytest.mark.parametrize("isolated", [False, None])
def test_a_strict_node_offers_nothing_unless_it_is_known_to_be_isolated(isolated):
    seen = advertise(NodeReading(NODE), GRAPH, SOURCE, isolation=found(isolated, strict=True))
    assert (seen.offered, seen.problem.type, seen.problem.status) == (None, "Ready", False)
    assert (seen.problem.reason, seen.problem.message) == (found(isolated, strict=True).reason, "words")
    assert seen.warning is None, "the problem is told already"
    assert advertise(NodeReading(NODE), GRAPH, SOURCE, isolation=found(True, strict=True)).offered == GRAPH


def test_without_a_look_there_is_no_such_condition():
    report = advertise(NodeReading(NODE), GRAPH, SOURCE).report
    assert [one.type for one in conditions_of(report)] == ["Ready", "Degraded", "Conflict"]


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_a_plugin_tells_of_the_hole_by_condition_and_event_and_a_strict_one_offers_nothing(
    plugin_with, dgx1, world, until, level
):
    one = plugin_with(Ailing(dgx1), NodeCdi(Cdi.NEVER), NodeIsolation(level, world / "probe" / "shown.json"))
    one.node()
    asked(world, "nvidia0")
    one.start()
    until(lambda: one.conditions().get("Isolated") == "False")
    until(lambda: [body["reason"] for body in one.events()] == ["VariableHonoured"])
    until(lambda: (one.conditions()["Ready"] == "True") is (level is not STRICT))
    (world / "dev" / "nvidia0").unlink()
    asked(world)
    one.node(change="again")
    until(lambda: (one.conditions()["Isolated"], one.conditions()["Ready"]) == ("True", "True"))
