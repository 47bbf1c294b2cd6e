"""Registering with a kubelet that has real sockets."""

import socket

import pytest

from kompakt_core import contract
from kompakt_device_plugin.main import LOOK_SECONDS
from kompakt_device_plugin.registration import LOST_SECONDS, Registrar


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Registering:
    def __init__(self, folder, parts):
        self.clock, self.devices, self.metrics = Clock(), parts.devices, parts.metrics
        self.servicer = parts.servicer()
        self.registrar = Registrar(folder, self.devices, self.servicer, self.metrics, self.clock)
        self.step = self.registrar.step


@pytest.fixture
def register(kubelet_dir, make_parts):
    return lambda: Registering(kubelet_dir, make_parts(kubelet_dir))


@pytest.fixture
def here(register):
    one = register()
    yield one
    one.registrar.close()


def test_nothing_is_registered_before_there_are_devices(here, kubelet, dgx1):
    here.step()
    assert kubelet.requests == []
    here.devices.publish(dgx1)
    here.step()
    assert len(kubelet.requests) == 1


def test_the_registration_names_resource_version_and_a_socket_that_serves(here, kubelet, client, dgx1):
    here.devices.publish(dgx1)
    here.step()
    request = kubelet.requests[0]
    assert (request.version, request.resource_name) == ("v1beta1", contract.RESOURCE)
    assert request.options.get_preferred_allocation_available
    lists = client(kubelet.folder / "device-plugins" / request.endpoint).lists()
    assert len(lists.get(timeout=60)) == 8


def test_one_start_of_kubelet_is_one_registration(here, kubelet, client, dgx1):
    here.devices.publish(dgx1)
    for _ in range(5):
        here.step()
    assert len(kubelet.requests) == 1


def test_a_restarted_kubelet_is_registered_with_again_on_a_new_socket(here, kubelet, client, dgx1):
    here.devices.publish(dgx1)
    here.step()
    kubelet.stop()
    here.step()
    kubelet.start()
    here.step()
    before, after = kubelet.requests
    assert before.endpoint != after.endpoint
    assert len(client(kubelet.folder / "device-plugins" / after.endpoint).lists().get(timeout=60)) == 8


def test_a_new_kubelet_is_registered_with_even_where_it_left_our_socket(here, kubelet, dgx1):
    here.devices.publish(dgx1)
    here.step()
    kubelet.stop()
    kubelet.start(wipe=False)
    here.step()
    assert len(kubelet.requests) == 2


def test_two_processes_never_share_a_socket(register, kubelet, dgx1):
    both = [register(), register()]
    for one in both:
        one.devices.publish(dgx1)
        one.step()
    assert len({request.endpoint for request in kubelet.requests}) == 2
    for one in both:
        one.registrar.close()


def test_a_refused_registration_is_tried_again_later(here, kubelet, dgx1):
    kubelet.refuse = "no thanks"
    here.devices.publish(dgx1)
    here.step()
    kubelet.refuse = None
    here.step()
    assert kubelet.requests == []
    here.clock.now += 1.1
    here.step()
    assert len(kubelet.requests) == 1


def test_a_kubelet_that_takes_no_registration_at_first_is_registered_with_in_five_seconds(here, kubelet, dgx1):
    """Its first answer may be waited for in vain, as long as that lasts; then comes the pause, then the second try."""
    kubelet.refuse = "not yet"
    here.devices.publish(dgx1)
    here.step()
    (patience,) = kubelet.patience
    kubelet.refuse, began = None, here.clock.now
    while not kubelet.requests:
        here.clock.now += 0.1
        here.step()
    assert patience + (here.clock.now - began) + LOOK_SECONDS < 5.0


def test_without_kubelet_nothing_happens(here, kubelet_dir, dgx1):
    here.devices.publish(dgx1)
    here.step()
    assert here.metrics.value("registrations_total") == 0


def test_a_kubelet_that_let_us_go_is_registered_with_again(here, kubelet, client, dgx1, until):
    here.devices.publish(dgx1)
    here.step()
    listening = client(kubelet.folder / "device-plugins" / kubelet.requests[0].endpoint)
    listening.lists().get(timeout=60)
    here.clock.now += LOST_SECONDS * 2
    here.step()
    assert len(kubelet.requests) == 1, "kubelet still listens"
    listening.channel.close()
    until(lambda: here.servicer.streams == 0)
    here.step()
    assert len(kubelet.requests) == 1, "it may come back by itself"
    here.clock.now += LOST_SECONDS + 1
    here.step()
    assert len(kubelet.requests) == 2


def test_closing_takes_the_socket_away(here, kubelet, dgx1):
    here.devices.publish(dgx1)
    here.step()
    socket = kubelet.folder / "device-plugins" / kubelet.requests[0].endpoint
    assert socket.exists()
    here.registrar.close()
    assert not socket.exists()


def test_only_the_socket_of_a_dead_process_is_swept_away(here, register, kubelet, dgx1):
    folder = kubelet.folder / "device-plugins"
    other = register()
    other.devices.publish(dgx1)
    other.step()
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(folder / "kompakt-crashed.sock"))
    here.devices.publish(dgx1)
    here.step()
    names = {path.name for path in folder.iterdir()}
    assert names - {"kompakt"} == {"kubelet.sock", *(request.endpoint for request in kubelet.requests)}
    assert len(names) == 4
    other.registrar.close()
