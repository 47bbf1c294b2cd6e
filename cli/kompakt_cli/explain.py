"""`kompakt explain`: why a pod, job or gang is where it is, or why it waits; and how a node stands."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from kompakt.standing import why
from kompakt_cli.access import jobs_of
from kompakt_cli.cluster_options import ClusterOptions, asking
from kompakt_cli.output import (
    GANG_RESOURCE,
    JOB_RESOURCE,
    Answer,
    OutputFormat,
    columns,
    facts,
    gpus,
    request_text,
    show,
    standings,
    worth,
)
from kompakt_cli.picture import draw
from kompakt_cli.words import gigabytes
from kompakt_core.contract.conditions import Type
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind

app = typer.Typer(
    help="Say why a pod, job or gang is where it is or waits, and how a node stands.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Name = Annotated[str, typer.Argument()]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="default: the kubeconfig's")]


@app.command()
@asking
def pod(question: ClusterOptions, name: Name, namespace: Namespace = None) -> None:
    """Why a pod got its GPUs and what was second best, or why it waits."""
    answer = question.cluster.get("pods", namespace or question.cluster.namespace, name)
    show(answer, question.output, pod_text(answer), [f"pod/{name}"])


@app.command()
@asking
def job(question: ClusterOptions, name: Name, namespace: Namespace = None) -> None:
    """What is decided about a TrainingJob, and why it waits."""
    answer = question.cluster.get("jobs", namespace or question.cluster.namespace, name)
    wide, now = question.output is OutputFormat.WIDE, _operators_word(question, name, namespace)
    show(answer, question.output, job_text(answer, wide, now), [f"{JOB_RESOURCE}/{name}"])


@app.command()
@asking
def gang(question: ClusterOptions, name: Name, namespace: Namespace = None) -> None:
    """What is decided about pods that others made, a Job's or JobSet's say, with this name in their label kompakt.dev/gang."""
    answer = question.cluster.get("gangs", namespace or question.cluster.namespace, name)
    show(
        answer, question.output, job_text(answer, question.output is OutputFormat.WIDE, what="gang"), [f"{GANG_RESOURCE}/{name}"]
    )


@app.command()
@asking
def node(question: ClusterOptions, name: Name) -> None:
    """A node's link graph, who holds which GPU, and what is left."""
    answer = question.cluster.get("nodes", name)
    show(answer, question.output, node_text(answer), [f"node/{name}"])


@app.command()
@asking
def nodes(question: ClusterOptions) -> None:
    """All nodes: free GPUs, the best Rings left, and why a node cannot be used; with -o wide also who has the others."""
    items: list[dict[str, Any]] = []
    wide = question.output is OutputFormat.WIDE
    asked = {"limit": 1000, **({"holders": "true"} if wide else {})}
    page = question.cluster.get("nodes", **asked)
    while True:
        items += page["items"]
        if not page["next"]:
            break
        page = question.cluster.get("nodes", **asked, after=page["next"])
    answer = {"items": items, "total": page["total"]}
    show(answer, question.output, nodes_text(items, wide), (f"node/{one['name']}" for one in items))


def pod_text(answer: Answer) -> Iterator[RenderableType]:
    """A pod's answer on screen."""
    asked, value = answer["asked"], answer["value"]
    yield facts(
        ("pod", f"{answer['namespace']}/{answer['name']}{_of(answer)}"),
        ("state", f"{answer['state']}: {answer['message']}"),
        ("asks for", request_text(asked) if asked else ""),
        ("has", f"GPU {gpus(answer['gpuIndices'])} of {answer['node']}" if answer["gpuIndices"] else ""),
        ("value", worth(value, answer["ideal"]) if value is not None and answer["ideal"] else ""),
        *(_decision(answer["decision"]) if answer["decision"] else ()),
        ("fits", _fits(answer["fits"], "this pod") if answer["state"] == "Waiting" else ""),
    )
    yield from standings(answer)


def _of(answer: Answer) -> str:
    """An older extender knows no gangs of others."""
    return f" of job {answer['job']}" if answer["job"] else f" of gang {answer['gang']}" if answer.get("gang") else ""


def _fits(nodes: int, what: str) -> str:
    return f"{nodes} {'node' if nodes == 1 else 'nodes'} could take {what} alone" if nodes else ""


def _decision(found: Answer) -> Iterator[tuple[str, str]]:
    yield "chosen", f"by the {found['chosenBy'].lower()} at {found['at']}, out of GPU {gpus(found['freeBefore'])}"
    second, other = found["secondSet"], found["secondNode"]
    yield "second set", f"GPU {gpus(second['gpus'])}: {gigabytes(second['value'])} GB/s" if second else "none known on this node"
    where = f"{other['node']}, GPU {gpus(other['gpus'])}: {gigabytes(other['value'])} GB/s" if other else found["note"]
    yield "second node", where


def _operators_word(question: ClusterOptions, name: str, namespace: str | None) -> str:
    """What the operator says is in the way, for those who may read the job itself."""
    try:
        return why(jobs_of(question.kubeconfig, question.context, namespace).get(name).get("status") or {})
    except InvalidInput:
        return ""


def _pods(workers: Mapping[str, int], state: str) -> str:
    """A gang that waits has no pods."""
    if not workers["present"] and state in ("Waiting", "Reserved"):
        return f"none yet; {workers['expected']} are created when all of them have places"
    return f"{workers['present']} of {workers['expected']} are there, {workers['bound']} bound"


def job_text(answer: Answer, wide: bool = False, now: str = "", what: str = "job") -> Iterator[RenderableType]:
    """A job's answer on screen; `wide` names the GPUs of each pod. `now`: what is in the way, as the operator says. `what`: gang
    for pods that others made, which have no attempts.
    """
    attempt = f", attempt {answer['attempt']}" if what == "job" else ""
    workers, scheduling = answer["workers"], answer["scheduling"]
    older = scheduling.get("state", ""), scheduling.get("message", "")  # an older extender does not say how a job ended
    state = (answer["state"], answer["message"]) if "state" in answer else older
    over = state[0] in (Type.COMPLETE, Type.FAILED)
    asked = scheduling.get("preempt")  # for a job of higher priority
    yield facts(
        (what, f"{answer['job']}{attempt}" + (", suspended" if answer["suspended"] else "")),
        ("state", ": ".join(filter(None, state))),
        ("now", now if now not in state else ""),
        ("since", scheduling.get("waitingSince", "") if state[0] in ("Waiting", "Reserved") else ""),
        ("asked", f"to end {asked['message']}, since {asked['requestedAt']}" if asked else ""),
        ("pods", "" if over else _pods(workers, state[0])),
        ("left out", ", ".join(f"{one['node']} until {one['until']}" for one in scheduling.get("excludedNodes", ()))),
        ("fits", _fits(answer["fits"], "the largest worker")),
    )
    if answer["pods"]:
        table = columns("pod", "node", "asks", "has", *(["which"] if wide else []), right=["asks", "has"])
        for one in answer["pods"]:
            which = [", ".join(one["gpus"]) or "-"] if wide else []
            table.add_row(one["name"], one["node"] or "-", str(one.get("asks", "-")), str(len(one["gpus"])), *which)
        yield table
    yield from standings(answer)


def node_text(answer: Answer) -> Iterator[RenderableType]:
    """A node's answer on screen."""
    yield facts(
        ("node", f"{answer['name']}: {answer['gpus']} GPUs, free {gpus(answer['free'])}"),
        *(("not usable", why["message"]) for why in answer["whyNot"]),
        *(
            (f"Ring of {one['gpus']}", f"{gigabytes(one['value'])} GB/s left of {gigabytes(one['empty'])} when empty")
            for one in answer["bestLeft"]
        ),
    )
    if answer["gpuList"]:
        yield draw(graph_of(answer), holders_of(answer))


def graph_of(answer: Answer) -> LinkGraph:
    """The link graph of a node's answer."""
    found = [Gpu(GpuIndex(g["index"]), GpuUuid(g["uuid"]), g["numaNode"], g["model"]) for g in answer["gpuList"]]
    links = (
        Link(GpuIndex(one["a"]), GpuIndex(one["b"]), LinkKind(one["kind"]), one["lanes"], one["megabytesPerSecond"])
        for one in answer["links"]
    )
    return LinkGraph(tuple(found), tuple(links))


def holders_of(answer: Answer) -> dict[int, str]:
    """Who has each GPU that is not free, in words."""
    held: dict[int, str] = {}
    for gpu in answer["gpuList"]:
        who = [f"{h['namespace']}/{h['name']} ({h['how']})" if h["name"] else f"pod {h['uid']}" for h in gpu["holders"]]
        if who or not gpu["free"]:
            held[gpu["index"]] = " and ".join(who) or f"nobody, but {gpu['health']}"
    return held


def holders_text(node: Answer) -> str:
    """Pods with GPUs of a node, each with how many; by uid those of namespaces that the caller may not read."""
    found = node.get("heldBy") or ()  # an older extender does not say it
    return ", ".join(
        f"{one['namespace']}/{one['name']} {one['gpus']}" if one["name"] else f"{one['uid']} {one['gpus']}" for one in found
    )


def nodes_text(items: list[dict[str, Any]], wide: bool = False) -> Iterator[RenderableType]:
    """The list of nodes on screen; `wide` adds what each would have if it were empty, and which pods have how many GPUs."""
    table = columns(
        "node", "gpus", "free", "ring of 2, 4, 8", *(["when empty", "held by"] if wide else []), "why", right=["gpus"]
    )
    for one in items:
        left = ", ".join(gigabytes(best["value"]) for best in one["bestLeft"])
        why = "; ".join(why["message"] for why in one["whyNot"])
        more = [", ".join(gigabytes(best["empty"]) for best in one["bestLeft"]), holders_text(one)] if wide else []
        table.add_row(one["name"], str(one["gpus"]), gpus(one["free"]), left, *more, why)
    yield table
