"""Registering with a kubelet that has real sockets."""

import socket

import pytest

from kompakt_core import contract
from kompakt_device_plugin.main import LOOK_SECONDS
from kompakt_device_plugin.registration import LOST_SECONDS, Registrar


class Registering:
    """A registrar with devices to offer, beside a kubelet that may be there."""

    def __init__(self, folder, parts, graph, client, resource):
        self.now, self.plugins, self.client = 100.0, folder / "device-plugins", client
        self.devices, self.metrics, self.servicer = parts.devices, parts.metrics, parts.servicer()
        self.registrar = Registrar(folder, self.devices, self.servicer, self.metrics, lambda: self.now, resource)
        if graph:
            self.devices.publish(graph)

    def step(self, after=0.0):
        self.now += after
        self.registrar.step()

    def calls(self, request):
        """What kubelet asks over the socket that it was told of."""
        return self.client(self.plugins / request.endpoint)


@pytest.fixture
def register(kubelet_dir, make_parts, dgx1, client):
    made = []

    def make(graph=dgx1, resource=contract.RESOURCE):
        made.append(Registering(kubelet_dir, make_parts(kubelet_dir), graph, client, resource))
        return made[-1]

    yield make
    for one in made:
        one.registrar.close()


@pytest.fixture
def here(register):
    return register()


def test_nothing_is_registered_before_there_are_devices(register, kubelet, dgx1):
    one = register(graph=None)
    one.step()
    assert kubelet.requests == []
    one.devices.publish(dgx1)
    one.step()
    assert len(kubelet.requests) == 1


def test_one_start_of_kubelet_is_one_registration_that_names_resource_version_and_a_socket_that_serves(here, kubelet):
    for _ in range(5):
        here.step()
    (request,) = kubelet.requests
    assert (request.version, request.resource_name) == ("v1beta1", contract.RESOURCE)
    assert request.options.get_preferred_allocation_available
    assert len(here.calls(request).lists().get(timeout=60)) == 8


@pytest.mark.parametrize(("resource", "times"), [(contract.RESOURCE, 1), ("nvidia.com/gpu", 2)])
def test_what_others_may_have_registered_meanwhile_is_registered_again_once_there_is_something_to_offer(
    register, kubelet, dgx1, resource, times
):
    one = register(resource=resource)
    one.step()
    one.devices.publish(None)
    one.step()
    assert len(kubelet.requests) == 1
    one.devices.publish(dgx1)
    one.step()
    one.step()
    assert [request.resource_name for request in kubelet.requests] == [resource] * times


def test_an_offer_taken_back_and_made_again_between_two_looks_is_registered_again(register, kubelet, dgx1):
    """A plugin that registered and left at once: kubelet still has it as the one to ask."""
    one = register(resource="nvidia.com/gpu")
    one.step()
    one.devices.publish(None)
    one.devices.publish(dgx1)
    one.step()
    one.step()
    assert len(kubelet.requests) == 2


@pytest.mark.parametrize("wipe", [True, False], ids=["which took our socket away", "which left our socket"])
def test_a_restarted_kubelet_is_registered_with_again_on_a_new_socket(here, kubelet, wipe):
    here.step()
    kubelet.stop()
    if wipe:
        here.step()
    kubelet.start(wipe=wipe)
    here.step()
    before, after = kubelet.requests
    assert before.endpoint != after.endpoint
    assert len(here.calls(after).lists().get(timeout=60)) == 8


def test_a_refused_registration_is_tried_again_later(here, kubelet):
    kubelet.refuse = "no thanks"
    here.step()
    kubelet.refuse = None
    here.step()
    assert kubelet.requests == []
    here.step(after=1.1)
    assert len(kubelet.requests) == 1


def test_a_kubelet_that_takes_no_registration_at_first_is_registered_with_in_five_seconds(here, kubelet):
    """Its first answer may be waited for in vain, as long as that lasts; then comes the pause, then the second try."""
    kubelet.refuse = "not yet"
    here.step()
    (patience,) = kubelet.patience
    kubelet.refuse, began = None, here.now
    while not kubelet.requests:
        here.step(after=0.1)
    assert patience + (here.now - began) + LOOK_SECONDS < 5.0


def test_without_kubelet_nothing_happens(here):
    here.step()
    assert here.metrics.value("registrations_total") == 0


def test_a_kubelet_that_let_us_go_is_registered_with_again(here, kubelet, until):
    here.step()
    listening = here.calls(kubelet.requests[0])
    listening.lists().get(timeout=60)
    here.step(after=LOST_SECONDS * 2)
    assert len(kubelet.requests) == 1, "kubelet still listens"
    listening.channel.close()
    until(lambda: here.servicer.streams == 0)
    here.step()
    assert len(kubelet.requests) == 1, "it may come back by itself"
    here.step(after=LOST_SECONDS + 1)
    assert len(kubelet.requests) == 2


def test_two_processes_have_each_a_socket_and_only_those_of_dead_ones_are_swept_away(here, register, kubelet):
    other = register()
    other.step()
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(here.plugins / "kompakt-crashed.sock"))
    here.step()
    ours = [request.endpoint for request in kubelet.requests]
    assert {path.name for path in here.plugins.iterdir()} == {"kompakt", "kubelet.sock", *ours}
    assert len(set(ours)) == 2
    here.registrar.close()
    assert not (here.plugins / ours[1]).exists()
