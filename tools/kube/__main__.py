"""`python -m tools.kube`: clusters on this machine."""

import contextlib
import json
import os
import sys
from typing import Annotated

import typer

from tools.kube import binaries, control_plane, demo, elsewhere, host, processes, real, simulated, simulated_demo, stack
from tools.kube.command import CommandFailed
from tools.kube.following import JobFailed
from tools.kube.ports import NoFreePort
from tools.kube.programs import PROGRAMS, SIMULATED, NoProgram

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
Name = Annotated[str, typer.Option(help="name of the cluster")]


def say(text: str) -> None:
    print(f"   {text}", file=sys.stderr, flush=True)


@app.command()
def up(
    name: Name = "demo",
    real_nodes: Annotated[int, typer.Option("--real", help="real nodes (root)", min=0, max=8)] = 0,
    simulated_nodes: Annotated[int, typer.Option("--simulated", help="simulated nodes", min=0)] = 0,
) -> None:
    """Bring up a control plane, simulated nodes (no root needed) and real ones; print the path of its kubeconfig."""
    if real_nodes:
        machines = [stack.MACHINES[index % len(stack.MACHINES)] for index in range(real_nodes)]
        prepared = stack.prepare(say)
        print(stack.start(name, machines, simulated.machines(simulated_nodes), prepared, say).kubeconfig)
        return
    folder = control_plane.run_folder(name)
    if control_plane.is_up(folder):
        say(f"cluster {name} is up already; `python -m tools.kube down --name {name}` removes it")
    else:
        found = binaries.find_all(SIMULATED, say)
        simulated.start(folder, found.__getitem__, simulated.machines(simulated_nodes), say=say)
    print(control_plane.read_kubeconfig(folder))


@app.command()
def down(name: Name = "demo") -> None:
    """Remove a cluster: its processes and all its files. With KOMPAKT_CLUSTER: what the demo left there."""
    if elsewhere.chosen():
        demo.remove_elsewhere(name)
        return
    folder = control_plane.run_folder(name)
    simulated_gone = control_plane.remove_leftovers(folder, say)
    with contextlib.suppress(OSError):  # other clusters may live there
        folder.parent.rmdir()
    if not real.remove(name, say) and not simulated_gone:
        say(f"there is no cluster {name}")


@app.command("demo")
def show_demo(
    name: Name = "demo",
    simulated_only: Annotated[bool, typer.Option("--simulated", help="simulated nodes, also where real ones can run")] = False,
) -> None:
    """The whole path on a cluster of its own, with real nodes where they can run, or on the one that KOMPAKT_CLUSTER chose;
    it stays up until `down`.
    """
    if elsewhere.chosen():
        demo.run_elsewhere(name)
        return
    obstacle = "simulated nodes were asked for" if simulated_only else host.obstacle()
    if obstacle is None:
        demo.run(name)
    else:
        simulated_demo.run(name, obstacle)


@app.command()
def status(name: Name = "demo") -> None:
    """Say what runs; exit code 1 where the cluster is not up."""
    folder = control_plane.run_folder(name)
    for process in processes.read_records(folder / "records.json"):
        print(f"{process.name:<26}{process.pid:>8}  {'runs' if process.alive() else 'ended'}  {process.log}")
    if not control_plane.is_up(folder):
        print(f"cluster {name} is not up")
        raise typer.Exit(1)
    print(f"kubeconfig {control_plane.read_kubeconfig(folder)}")


@app.command("binaries")
def show_binaries(build: Annotated[bool, typer.Option("--build", help="fetch or build what is missing")] = False) -> None:
    """Say where each program comes from."""
    for program in PROGRAMS.values():
        path = binaries.find(program.name, say) if build else binaries.present(program)
        print(f"{program.name:<26}{path or 'missing'}")


@app.command("images")
def show_images() -> None:
    """Build the images, and print their names as KOMPAKT_IMAGES takes them (root)."""
    names = stack.prepare(say).names
    print(json.dumps({name: image for name, image in names.items() if name in (*elsewhere.NAMES, "kube-scheduler")}, indent=2))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def kubectl(context: typer.Context, name: Name = "demo") -> None:
    """Run kubectl against a cluster: `python -m tools.kube kubectl get nodes`."""
    program = binaries.find("kubectl", say)
    real_one = real.kubeconfig_of(real.cluster_folder(name))
    kubeconfig = real_one if real_one.exists() else control_plane.read_kubeconfig(control_plane.run_folder(name))
    os.execv(program, ["kubectl", f"--kubeconfig={kubeconfig}", *context.args])


# What can go wrong outside of this program: told as a sentence, without a traceback.
EXPECTED = (
    *(control_plane.StartFailed, control_plane.AlreadyUp, NoProgram),
    *(host.CannotRun, CommandFailed, JobFailed, NoFreePort, TimeoutError),
)


def main() -> None:
    try:
        app(standalone_mode=True)
    except EXPECTED as error:
        sys.exit(f"tools.kube: {error}")


if __name__ == "__main__":
    main()
