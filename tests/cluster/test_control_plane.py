"""The cluster the other tests stand on: what is real in it behaves as real, what is simulated as we say."""

from pathlib import Path

import pytest
import yaml

from kompakt_client.transport import connect
from tools.kube import control_plane
from tools.kube.components import node_kubeconfig
from tools.kube.processes import Process, boot_id, read_records
from tools.kube.session import ClusterSession, KubectlFailed


def test_an_account_without_rights_is_refused(cluster: ClusterSession) -> None:
    kubeconfig = cluster.parts.account_kubeconfig("operator")
    with pytest.raises(KubectlFailed, match="forbidden"):
        cluster.kubectl("delete", "node", "dgx-0", kubeconfig=kubeconfig)


def test_a_node_may_not_change_another_node(cluster: ClusterSession) -> None:
    mine = node_kubeconfig(cluster.plane.keys, cluster.plane.addresses, "dgx-0")
    cluster.kubectl("annotate", "node", "dgx-0", "checked=yes", kubeconfig=mine)
    with pytest.raises(KubectlFailed, match="forbidden"):
        cluster.kubectl("annotate", "node", "dgx-1", "checked=yes", kubeconfig=mine)


def test_a_pid_that_another_process_has_now_is_not_touched(cluster: ClusterSession, tmp_path: Path) -> None:
    kwok = cluster.plane.processes["kwok"]
    recycled = Process(kwok.name, kwok.pid, kwok.started + 1, boot_id(), kwok.log)
    control_plane.write_records(tmp_path / "records.json", [recycled])  # type: ignore[attr-defined]
    assert not read_records(tmp_path / "records.json")[0].alive()
    control_plane.remove_leftovers(tmp_path, print)
    assert kwok.alive()


def test_a_kubeconfig_may_ask_in_the_name_of_somebody_else(cluster: ClusterSession, tmp_path: Path) -> None:
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    user = {"as": "jane", "as-groups": ["ml", "system:authenticated"], "as-user-extra": {"example.org/Team": ["a b", "ops"]}}
    document["users"][0]["user"] |= user
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = connect(path).create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
    assert (found["username"], found["groups"]) == ("jane", ["ml", "system:authenticated"])
    assert found["extra"]["example.org/team"] == ["a b", "ops"]  # the API server lowers the case of keys
