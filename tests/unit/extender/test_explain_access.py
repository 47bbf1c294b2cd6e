"""Who is answered by the health port, and what a namespace is told of the others."""

from typing import Any

import httpx
import pytest

from kompakt_client.reviews import KEPT_SECONDS, READ_METRICS, explaining
from kompakt_core.contract import JOB_PLURAL, TOKEN_HEADER, TOPOLOGY_PLURAL
from kompakt_extender.health import health_app
from kompakt_extender.metrics import ExtenderMetrics
from tests.support.client.reviewing import Reviewing
from tests.support.extender.explain_client import ExplainClient, bound, explain_client
from tests.support.extender.guard import guarded_by

TENANT = {TOKEN_HEADER: "token-of-tenant"}
QUESTIONS = ("/v1alpha1/nodes", "/v1alpha1/nodes/n0", "/v1alpha1/pods/default/a", "/v1alpha1/jobs/default/a")
NODES, DEFAULT, OTHER = explaining(TOPOLOGY_PLURAL), explaining(JOB_PLURAL, "default"), explaining(JOB_PLURAL, "other")


@pytest.fixture
async def client() -> ExplainClient:
    """One pod of namespace default is bound to n0; a tenant is known who may nothing."""
    made = explain_client()
    await bound(made.leader, "a", 2, "n0")
    made.http.headers = httpx.Headers()
    made.api_server.users["token-of-tenant"] = "tenant"
    return made


async def status(client: ExplainClient, path: str, headers: dict[str, str], body: Any = None) -> int:
    answer = await client.http.request("GET" if body is None else "POST", path, headers=headers, json=body)
    assert answer.status_code == 200 or ("detail" in answer.json() and len(answer.json()) == 1)
    return answer.status_code


@pytest.mark.parametrize("path", [*QUESTIONS, "/metrics"])
@pytest.mark.parametrize("headers", [{}, {TOKEN_HEADER: "forged"}, {"X-Remote-User": "admin", "X-Forwarded-For": "10.0.0.1"}])
async def test_strangers_are_told_nothing(client: ExplainClient, path: str, headers: dict[str, str]) -> None:
    assert await status(client, path, headers) == 401


async def test_strangers_may_not_post_either(client: ExplainClient) -> None:
    assert await status(client, "/v1alpha1/what-if", {}, {"gpus": 1}) == 401
    assert await status(client, "/v1alpha1/what-if", TENANT, {"gpus": 1}) == 403


@pytest.mark.parametrize("path", [*QUESTIONS, "/metrics"])
async def test_who_is_known_is_told_only_what_a_role_allows(client: ExplainClient, path: str) -> None:
    assert await status(client, path, TENANT) == 403


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/docs", "/openapi.json"])
async def test_probes_and_the_page_are_open(client: ExplainClient, path: str) -> None:
    assert (await client.http.get(path)).status_code == 200


async def test_a_tenant_asks_about_their_namespace_and_no_other(client: ExplainClient) -> None:
    client.api_server.rights["tenant"] = {OTHER}
    assert await status(client, "/v1alpha1/pods/default/a", TENANT) == 403
    assert await status(client, "/v1alpha1/pods/default/missing", TENANT) == 403, "nor whether there is such a pod"
    assert await status(client, "/v1alpha1/pods/other/a", TENANT) == 404
    assert await status(client, "/v1alpha1/jobs/other/a", TENANT) == 404


async def holders(client: ExplainClient) -> list[dict[str, Any]]:
    answer = (await client.http.get("/v1alpha1/nodes/n0", headers=TENANT)).json()
    return [holder for gpu in answer["gpuList"] for holder in gpu["holders"]]


async def test_of_pods_of_others_a_node_shows_uids_only(client: ExplainClient) -> None:
    uid = client.leader.world.pods["a"]["metadata"]["uid"]
    client.api_server.rights["tenant"] = {NODES, OTHER}
    assert await holders(client) == [{"namespace": "", "name": "", "uid": uid, "how": "Bound"}] * 2


@pytest.mark.parametrize("right", [DEFAULT, explaining(JOB_PLURAL)], ids=["of the namespace", "of all"])
async def test_a_node_names_pods_to_who_may_see_their_namespace(client: ExplainClient, right: Any) -> None:
    client.api_server.rights["tenant"] = {NODES, right}
    assert {(one["namespace"], one["name"]) for one in await holders(client)} == {("default", "a")}


async def test_of_pods_of_others_a_list_of_nodes_shows_uids_only(client: ExplainClient) -> None:
    uid = client.leader.world.pods["a"]["metadata"]["uid"]
    client.api_server.rights["tenant"] = {NODES, OTHER}
    answer = (await client.http.get("/v1alpha1/nodes?holders=true", headers=TENANT)).json()
    assert answer["items"][0]["heldBy"] == [{"namespace": "", "name": "", "uid": uid, "how": "Bound", "gpus": 2}]


async def test_without_a_word_of_the_api_server_nobody_is_answered(client: ExplainClient) -> None:
    client.api_server.down = True
    for path in (*QUESTIONS, "/metrics"):
        assert await status(client, path, {TOKEN_HEADER: "token-of-admin"}) == 503


async def test_a_word_that_is_missing_for_names_alone_hides_the_whole_node(client: ExplainClient) -> None:
    client.api_server.rights["tenant"] = {NODES}
    assert await status(client, "/v1alpha1/nodes", TENANT) == 200
    client.api_server.down = True
    assert await status(client, "/v1alpha1/nodes/n0", TENANT) == 503


async def test_metrics_need_the_right_that_kubernetes_has_for_them(client: ExplainClient) -> None:
    client.api_server.rights["tenant"] = {READ_METRICS}
    assert (await client.http.get("/metrics", headers={"Authorization": "Bearer token-of-tenant"})).text.startswith("# HELP")


async def test_plain_metrics_open_figures_and_nothing_else(client: ExplainClient) -> None:
    app = health_app(client, ExtenderMetrics(), guarded_by(Reviewing(), plain_metrics=True))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as plain:
        assert (await plain.get("/metrics")).status_code == 200
        assert (await plain.get("/v1alpha1/nodes")).status_code == 401


async def test_a_standby_too_asks_who_asks(client: ExplainClient) -> None:
    client.active = False
    assert await status(client, "/v1alpha1/nodes", {}) == 401
    assert await status(client, "/v1alpha1/nodes", {TOKEN_HEADER: "token-of-admin"}) == 503


def test_words_count_no_longer_than_those_of_the_api_servers_own_libraries() -> None:
    assert KEPT_SECONDS <= 10
