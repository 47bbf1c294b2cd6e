"""The explain API as people reach it: the command, the API server's service proxy, the extender's pod."""

import json

import pytest

from kompakt_cli.access import DEFAULT_SERVICE
from tests.support.node.commands import kompakt_command
from tests.support.node.scraping import figures
from tools.kube.parts import NAMESPACE

PROXY = f"/api/v1/namespaces/{NAMESPACE}/services/{DEFAULT_SERVICE}:http/proxy"


def test_nodes_are_explained_through_the_api_server(kompakt):
    done = kompakt_command(kompakt, "explain", "nodes", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)["items"]}
    for name in ("node-1", "node-2"):
        topology = kompakt.kubectl.get("gputopology", name)
        assert found[name]["gpus"] == len(topology["spec"]["gpus"])
        assert found[name]["usable"], found[name]["whyNot"]


def test_what_if_is_answered_and_mistakes_come_back_as_sentences(kompakt):
    done = kompakt_command(kompakt, "what-if", "--gpus", "4", "--pattern", "ring", "-o", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["fits"] >= 2
    assert answer["offers"][0]["value"] == answer["ideal"]
    wrong = kompakt_command(kompakt, "explain", "pod", "nobody", "-n", "default")
    assert (wrong.returncode, wrong.stderr.strip()) == (2, "kompakt: no pod default/nobody is known")
    absent = kompakt_command(kompakt, "explain", "nodes", "--service", "absent")
    assert "the Service absent in namespace" in absent.stderr
    assert absent.returncode == 2


@pytest.mark.parametrize(("path", "word"), [("/docs", "swagger-ui"), ("/openapi.json", "/v1alpha1/what-if")])
def test_the_page_comes_through_the_proxy(kompakt, path, word):
    assert word in kompakt.kubectl("get", "--raw", f"{PROXY}{path}")


def test_figures_come_through_the_proxy_to_who_may_read_them(kompakt):
    """Without a token not even an administrator gets any: the proxy does not say who asks."""
    status, text = figures(kompakt, f"{PROXY}/metrics")
    assert status == 401
    assert "# HELP" in text


def test_the_policy_lets_in_the_api_server_that_the_cluster_announces(kompakt):
    policy = kompakt.kubectl.get("networkpolicy", DEFAULT_SERVICE, "-n", NAMESPACE)
    (slice_,) = [s for s in kompakt.kubectl.items("endpointslices") if s["metadata"]["name"] == "kubernetes"]
    announced = {f"{address}/32" for endpoint in slice_["endpoints"] for address in endpoint["addresses"]}
    let_in = {peer["ipBlock"]["cidr"] for rule in policy["spec"]["ingress"] for peer in rule["from"]}
    assert announced == let_in
