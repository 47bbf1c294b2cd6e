"""A Reflector before the real API server, through a proxy that spoils one request in ten: it ends with what the server has.

KOMPAKT_SEED repeats a run. There is no comparison by the clock: what the watch, 410 Gone and our own answers say must do.
"""

import os
import random
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kompakt_client.errors import ApiError, Conflict, NotFound
from kompakt_client.objects import WatchedKind
from kompakt_client.reflector import Reflector
from kompakt_client.requests import ApiRequest
from kompakt_client.store import ObjectChange, StoredObject
from kompakt_client.transport import ApiClient, connect
from tools.kube import control_plane
from tools.kube.binaries import find_all
from tools.kube.processes import launch_tied, wait_until
from tools.kube.programs import SIMULATED
from tools.kube.session import ClusterSession

SEED = int(os.environ.get("KOMPAKT_SEED", "0")) or secrets.randbelow(1 << 31)
SPACE = "/api/v1/namespaces/default/configmaps"
LABEL = "kompakt.dev/test"
NAMES = [f"thing-{number}" for number in range(8)]
WRITES = 400
Known = dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """A control plane and the proxy before it."""
    find = find_all([*SIMULATED, "helm"]).__getitem__
    folder = tmp_path_factory.mktemp("reflector") / "run"
    cluster = ClusterSession(control_plane.start(folder, find, launch=launch_tied), find)
    yield cluster
    cluster.stop()


@pytest.fixture
def spoilt(plane: ClusterSession, tmp_path: Path) -> ApiClient:
    """The API server through the proxy, with an account that may do all: the proxy hands on no certificates."""
    admin = connect(plane.kubeconfig)
    account = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "reflector"}, "roleRef": role, "subjects": [account]}
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    token = admin.create("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {"expirationSeconds": 3600}})
    address, proxy = plane.parts.faulty_server(SEED)
    plane.start(proxy)
    authority = str(plane.plane.keys.authority.certificate_file)
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": address, "certificate-authority": authority}}],
        "users": [{"name": "u", "user": {"token": token["status"]["token"]}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return connect(path)


class Mirror:
    """What a listener has been told: uid and data by name."""

    def __init__(self) -> None:
        self.known: Known = {}
        self.lists = 0

    def replace(self, objects: Iterable[StoredObject[str]]) -> None:
        self.lists += 1
        self.known = {found.name: (found.uid, str(found.view)) for found in objects}

    def change(self, changes: Sequence[ObjectChange[str]]) -> None:
        for change in changes:
            if change.before:
                del self.known[change.before.name]
            if change.after:
                self.known[change.after.name] = (change.after.uid, str(change.after.view))


def number_of(raw: bytes) -> str:
    return str(msgspec.json.decode(raw)["data"]["number"])


def disturb(api: ApiClient, reflector: Reflector[str], chance: random.Random) -> None:
    """Writes and deletes; what is answered reaches the Reflector at once or late."""
    late: list[threading.Timer] = []
    for number in range(WRITES):
        name = chance.choice(NAMES)
        body = {"metadata": {"name": name, "labels": {LABEL: "yes"}}, "data": {"number": str(number)}}
        try:
            if chance.random() < 0.3:
                told: Any = (reflector.gone, deleted(api, name))
            else:
                told = (reflector.answered, msgspec.json.encode(written(api, name, body)))
        except ApiError:  # spoilt on its way: nobody knows whether it was done, nobody tells the Reflector
            continue
        late.append(threading.Timer(chance.choice([0.0, 0.01, 0.3]), told[0], [told[1]]))
        late[-1].start()
    for timer in late:
        timer.join()


def written(api: ApiClient, name: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        return api.create(SPACE, body)
    except Conflict:
        return api.merge(f"{SPACE}/{name}", body)


def deleted(api: ApiClient, name: str) -> str:
    """The uid of what went; one that nobody has where nothing did."""
    try:
        uid = str(api.get(f"{SPACE}/{name}")["metadata"]["uid"])
        api.json(ApiRequest("DELETE", f"{SPACE}/{name}", body={"preconditions": {"uid": uid}}))
    except NotFound:
        return "nobody"
    return uid


@pytest.mark.timeout(300)
def test_through_a_spoilt_network_the_store_ends_with_what_the_server_has(plane: ClusterSession, spoilt: ApiClient) -> None:
    admin, mirror, chance = connect(plane.kubeconfig), Mirror(), random.Random(SEED)
    kind = WatchedKind("configmaps", SPACE, number_of, {"labelSelector": LABEL}, watch_seconds=5, silence_seconds=20.0, page=3)
    reflector = Reflector(spoilt, kind, mirror, compare_seconds=3600.0)
    reflector.start()
    disturb(spoilt, reflector, chance)

    def there() -> Known:
        items = admin.list(SPACE, {"labelSelector": LABEL})["items"]
        return {item["metadata"]["name"]: (item["metadata"]["uid"], item["data"]["number"]) for item in items}

    try:
        assert wait_until(lambda: mirror.known == there(), 60), f"seed {SEED}: {mirror.known} is not {there()}"
        time.sleep(1.0)  # run on after success: nothing moves any more
        assert mirror.known == there() == {one.name: (one.uid, one.view) for one in reflector.store}
        assert mirror.lists == 1, "a broken connection costs no new list"
    finally:
        reflector.stop()
