"""`kompakt explain` and `kompakt what-if` against the real explain API, mounted where the API server's service proxy has it."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from kompakt_cli import access, main
from kompakt_cli.explain import job_text
from kompakt_cli.output import gpus, rejections
from kompakt_client import connections
from kompakt_client.kubeconfig import Access
from kompakt_client.reviews import explaining
from kompakt_core import contract as c
from kompakt_core.errors import InvalidInput
from kompakt_extender.main import listen
from tests.support.cli.standin import Standin, kubeconfig, serving
from tests.support.extender.explain_client import ExplainClient, bound
from tests.support.extender.guard import TOKEN
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod
from tests.support.extender.world import World

Run = Callable[..., Result]


async def three_nodes() -> ExplainClient:
    """Three nodes; one pod bound, one gang waiting, one pod without a node."""
    world = World()
    for name, kind in {"dgx-0": "dgx1-v100", "dgx-1": "dgx1-v100", "pcie-0": "a100-pcie-8-bridge-pairs"}.items():
        world.add_node(name, kind)
    client = ExplainClient(Leader(world))
    client.leader.take_over()
    await bound(client.leader, "trainer", 4, "dgx-0")
    world.add_gang("large", 4, 8)
    world.add_pod(pod("greedy", 16))
    await client.leader.settle()
    return client


@pytest.fixture(scope="module")
def standin() -> Iterator[tuple[Standin, int]]:
    with serving(three_nodes()) as found:
        yield found


@pytest.fixture
def run(standin: tuple[Standin, int], tmp_path: Path) -> Run:
    """The command in 100 columns, with a kubeconfig that leads to the stand-in."""
    path = kubeconfig(tmp_path, standin[1])

    def invoke(*words: str, **more: Any) -> Result:
        return CliRunner(env={"COLUMNS": "100"}).invoke(main.application(), [*words, *more.pop("last", [])], **more)

    return lambda *words, **more: invoke(*words, last=[f"--kubeconfig={path}"], **more)


def ask(*words: str) -> Result:
    """The command without a kubeconfig of ours."""
    return CliRunner().invoke(main.application(), words)


def sentence(result: Result) -> str:
    assert isinstance(result.exception, InvalidInput), result.output
    return str(result.exception)


def test_a_bound_pod_is_explained(run: Run, standin: tuple[Standin, int]) -> None:
    out = run("explain", "pod", "trainer").output
    leader = standin[0].client.leader
    indices = [int(i) for i in leader.annotations("trainer")[c.ANN_GPU_INDICES].split(",")]
    assert "default/trainer" in out
    assert f"GPU {gpus(indices)} of dgx-0" in out
    value = int(leader.annotations("trainer")[c.ANN_VALUE])
    assert f"{value / 1000:.1f} GB/s" in out
    assert "by the extender at 2026-01-31T12:00:00Z, out of GPU 0-7" in out
    assert "second set" in out


def test_a_waiting_pod_and_its_job_are_explained(run: Run) -> None:
    waiting = run("explain", "pod", "large-worker-0-a1", "-n", "default").output
    assert "Waiting" in waiting
    assert "of job large" in waiting
    assert "NotEnoughFreeGPUs" in waiting
    job = run("explain", "job", "large").output
    assert "4 of 4 are there, 0 bound" in job
    assert "dgx-0" in job
    assert "no node can take it now" in run("explain", "pod", "greedy").output


def test_a_job_that_is_asked_to_end_for_another_says_so() -> None:
    asked = {"message": "for ml/urgent, priority 1000; this job has priority 0", "requestedAt": "2026-01-31T12:00:00Z"}
    workers = {"present": 2, "expected": 2, "bound": 2}
    answer = {"job": "ml/low", "attempt": 1, "suspended": False, "workers": workers, "pods": [], "rejections": [], "fits": 0}
    console = Console(width=200, file=io.StringIO())
    for part in job_text({**answer, "scheduling": {"state": "Released", "preempt": asked}}):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    assert "to end for ml/urgent, priority 1000; this job has priority 0, since 2026-01-31T12:00:00Z" in console.file.getvalue()


def test_a_node_is_drawn_with_its_holders(run: Run) -> None:
    out = run("explain", "node", "dgx-0").output
    assert "A = default/trainer (Bound): GPU" in out
    assert "Ring of 4" in out
    assert "free " in out


def test_all_nodes_are_listed(run: Run) -> None:
    out = run("explain", "nodes").output
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["dgx-0", "dgx-1", "pcie-0"]


def test_what_if_ranks_nodes(run: Run) -> None:
    out = run("what-if", "--gpus", "8", "--pattern", "ring").output
    assert "asked 8 GPUs, pattern Ring, policy Preserve, sensitive" in " ".join(out.split())
    assert "2 of 3 nodes" in out
    assert "NotEnoughFreeGPUs" in out
    rows = [line.split() for line in out.splitlines() if line.startswith(("dgx-", "pcie-"))]
    assert [row[0] for row in rows] == ["dgx-1", "pcie-0", "dgx-0"]
    assert rows[2][1:3] == ["4", "0"]
    assert rows[0][-2] == "10"


def test_what_if_knows_own_edges(run: Run) -> None:
    answer = json.loads(run("what-if", "--gpus", "3", "--edges", "0-1,1-2", "-o", "json").stdout)
    assert (answer["asked"]["pattern"], answer["asked"]["edges"], answer["fits"]) == ("Custom", "0-1,1-2", 3)
    assert "pattern Custom 0-1,1-2:3" in " ".join(run("what-if", "--gpus", "3", "--edges", "2-1:3,0-1").output.split())
    assert "edge 1" in sentence(run("what-if", "--gpus", "3", "--edges", "0+1"))


def test_every_command_that_asks_a_cluster_takes_the_same_options(run: Run) -> None:
    shared = ["--output", "--kubeconfig", "--context", "--kompakt-namespace", "--service", "--account", "--token-file"]
    for words in (["explain", "pod"], ["explain", "job"], ["explain", "node"], ["explain", "nodes"], ["what-if"]):
        found = [word for word in run(*words, "--help").output.split() if word.startswith("--")]
        assert found[found.index("--output") :] == [*shared, "--help"], words


def test_what_is_wrong_with_a_question_is_said_before_a_cluster_is_looked_for(run: Run) -> None:
    assert "either --gpus or a pod" in sentence(run("what-if", "--kubeconfig", "/nonexistent"))


def test_what_if_reads_a_manifest(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump({"kind": "Pod", **pod("p", 2, annotations={c.ANN_PATTERN: "Clique"})}))
    assert "2 GPUs, pattern Clique" in run("what-if", "-f", str(path)).output
    assert "2 GPUs, pattern Clique" in run("what-if", "-f", "-", input=path.read_text()).output


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "pod", "trainer"],
        ["explain", "job", "large"],
        ["explain", "node", "dgx-0"],
        ["explain", "nodes"],
        ["what-if", "--gpus", "2"],
    ],
)
def test_json_is_the_answer_itself(run: Run, words: list[str]) -> None:
    assert isinstance(json.loads(run(*words, "-o", "json").stdout), dict)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["explain", "pod", "nobody"], "no pod default/nobody is known"),
        (["explain", "node", "n/../x"], "'n/../x' is no name"),
        (["explain", "node", "n9"], "no node 'n9' is known"),
        (["explain", "pod", "trainer", "--service", "other"], "there is no Service other in namespace kompakt-system"),
        (
            ["explain", "nodes", "--service", "absent"],
            "there is no service account kompakt-system/absent-reader in whose name to ask the Service absent in namespace "
            "kompakt-system: name the place with --kompakt-namespace and --service, or another account with --account",
        ),
        (["what-if"], "give either --gpus or a pod's manifest"),
        (["what-if", "--gpus", "2", "--pattern", "cube"], "--pattern: unknown value 'cube'"),
        (["what-if", "--gpus", "2000"], "gpus: Input should be less than or equal to 1024"),
        (["what-if", "-f", "/nowhere"], "/nowhere: cannot be read"),
        (["what-if", "-f", "-", "--nvlink"], "with -f the pod's annotations say how GPUs are chosen"),
    ],
)
def test_what_went_wrong_is_one_sentence(run: Run, words: list[str], expected: str) -> None:
    assert expected in sentence(run(*words))


def test_rights_and_tokens_are_those_of_the_kubeconfig(run: Run, standin: tuple[Standin, int], tmp_path: Path) -> None:
    stand, port = standin
    run("explain", "nodes")
    assert stand.tokens == {"Bearer mine"}
    nobody = kubeconfig(tmp_path, port, "nobody")
    assert "explain.readers" in sentence(ask("explain", "nodes", f"--kubeconfig={nobody}"))
    stand.tokens.clear()


def test_a_standby_is_asked_again_and_named_when_nobody_decides(
    run: Run, standin: tuple[Standin, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand, client, pauses = standin[0], standin[0].client, list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        client.active = len(pauses) == 3

    monkeypatch.setattr(access, "sleep", pause)
    client.active, stand.requests = False, 0
    try:
        assert "dgx-0" in run("explain", "nodes").output
        assert (len(pauses), stand.requests) == (3, 4), "after each pause once, and nobody else asks it again"
        client.active = False
        assert "held by b_1" in sentence(run("explain", "nodes"))
        assert len(pauses) == 3 + access.TRIES - 1
    finally:
        client.active = True


@pytest.mark.parametrize("content", ["", "a: [", "apiVersion: v1\nkind: Config\n"])
def test_a_useless_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    assert "no usable kubeconfig" in sentence(ask("explain", "nodes", f"--kubeconfig={path}"))


def test_several_kubeconfigs_and_another_context(
    standin: tuple[Standin, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first file leads nowhere; the second, merged into it, holds the context that is asked for."""
    away = kubeconfig(tmp_path, 1, "away")
    away.write_text(
        away.read_text().replace("name: here", "name: away").replace("current-context: here", "current-context: away")
    )
    other = kubeconfig(tmp_path, standin[1], "mine", "elsewhere")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/gone:{away}:{other}")
    assert sentence(ask("explain", "pod", "trainer", "--context=here")) == "no pod elsewhere/trainer is known", (
        "the namespace is that of the context that was named"
    )
    assert "default/trainer" in ask("explain", "pod", "trainer", "-n", "default", "--context=here").output
    assert "none is called 'x'" in sentence(ask("explain", "nodes", "--context=x"))


def test_the_kubeconfig_at_home_and_the_pods_own_cluster(
    standin: tuple[Standin, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    nothing = ask("explain", "nodes")
    assert sentence(nothing).startswith(f"no usable kubeconfig: there is no {tmp_path}/.kube/config; not inside a cluster")
    account = Access(f"http://127.0.0.1:{standin[1]}", token="mounted")
    with monkeypatch.context() as inside:
        inside.setattr(connections.kubeconfig, "in_pod", lambda environment: account)  # type: ignore[attr-defined]
        assert "dgx-0" in ask("explain", "nodes").output
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path, standin[1]).rename(tmp_path / ".kube/config")
    assert "dgx-0" in ask("explain", "nodes").output
    assert standin[0].tokens >= {"Bearer mounted", "Bearer mine"}
    standin[0].tokens.clear()


def test_an_api_server_that_is_away_is_said_so(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
    assert "cannot be reached" in sentence(ask("explain", "nodes", f"--kubeconfig={kubeconfig(tmp_path, port)}"))


@pytest.mark.parametrize(
    ("indices", "words"), [([], "none"), ([0, 1, 2, 5], "0-2,5"), ([4, 5], "4,5"), ([3, 0, 1], "3,0,1"), ([7], "7")]
)
def test_gpu_sets_are_written_short(indices: list[int], words: str) -> None:
    assert gpus(indices) == words


@pytest.mark.parametrize("key", ["rejections", "refusals"], ids=["as the extender says", "as one before this version said"])
def test_the_rejections_of_any_extender_are_shown(key: str) -> None:
    found = [{"reason": "NotEnoughFreeGPUs", "message": "not enough free GPUs", "nodes": 3, "examples": ["n0", "n1"]}]
    console = Console(width=200, file=io.StringIO())
    console.print(*rejections({key: found}))
    assert isinstance(console.file, io.StringIO)
    assert "NotEnoughFreeGPUs  not enough free GPUs  n0, n1" in console.file.getvalue()


def test_a_token_for_the_explain_api_alone_is_asked_for_once(run: Run, standin: tuple[Standin, int]) -> None:
    standin[0].granted.clear()
    run("explain", "nodes")
    ((account, body),) = standin[0].granted
    assert account == "kompakt-system/kompakt-explain-reader"
    assert body["spec"] == {"audiences": ["kompakt.dev"], "expirationSeconds": 600}


def test_another_account_may_ask_and_is_named_where_it_may_not(run: Run, standin: tuple[Standin, int]) -> None:
    api_server = standin[0].client.api_server
    api_server.users["token-of-trainer"] = "system:serviceaccount:default:trainer"
    api_server.rights["system:serviceaccount:default:trainer"] = {explaining(c.JOB_PLURAL, "default")}
    assert "default/trainer" in run("explain", "pod", "trainer", "--account", "default/trainer").output
    told = sentence(run("explain", "nodes", "--account", "default/trainer"))
    assert "system:serviceaccount:default:trainer may not get gputopologies/explain.kompakt.dev in the whole cluster" in told
    assert "--account" in told


@pytest.mark.parametrize("account", ["trainer", "a/b/c", "/b", "a/"])
def test_an_account_is_a_namespace_and_a_name(run: Run, account: str) -> None:
    assert "NAMESPACE/NAME" in sentence(run("explain", "nodes", "--account", account))


def test_who_gets_no_token_is_told_what_to_ask_for(standin: tuple[Standin, int], tmp_path: Path) -> None:
    told = sentence(ask("explain", "nodes", f"--kubeconfig={kubeconfig(tmp_path, standin[1], 'no-tokens')}"))
    assert "no token of the service account kompakt-system/kompakt-explain-reader: serviceaccounts/token is forbidden" in told
    assert "explain.readers" in told


def test_a_pod_asks_with_a_token_of_its_own(run: Run, standin: tuple[Standin, int], tmp_path: Path) -> None:
    standin[0].granted.clear()
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert "dgx-0" in run("explain", "nodes", "--token-file", str(file)).output
    assert standin[0].granted == []
    file.write_text("two words")
    assert "holds no token" in sentence(run("explain", "nodes", "--token-file", str(file)))
    assert "cannot read" in sentence(run("explain", "nodes", "--token-file", str(tmp_path / "gone")))
