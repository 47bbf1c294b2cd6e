"""From a bare machine to a cluster with real nodes: host, programs, images, namespaces, DNS, simulated nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template

from kompakt_client.transport import connect
from tools.kube import binaries, host, image_store, images, kwok, namespaces, real
from tools.kube.beside import Step, beside
from tools.kube.buildah import Builder
from tools.kube.cache import cache_root, locked
from tools.kube.images import Recipe
from tools.kube.kubectl import Kubectl, await_state, condition
from tools.kube.programs import REAL
from tools.kube.real import RealCluster
from tools.kube.simulated import SimulatedMachine

Say = Callable[[str], None]
LOG = "images.log"
MACHINES = ("dgx1-v100", "a100-pcie-8-bridge-pairs")
"""The machines that real nodes play, in turn: their link graphs come from text descriptions."""
REAL_NODES = tuple(f"node-{number}" for number in range(1, len(MACHINES) + 1))
SIMULATED = tuple(SimulatedMachine(f"sim-{number}", "dgx1-v100", 8) for number in range(3))
_MANIFESTS = Path(__file__).parent / "manifests"


@dataclass(frozen=True, slots=True)
class Images:
    """A filled containerd root and the names of the images in it, by recipe name."""

    root: Path
    names: dict[str, str]


def prepare(say: Say, more: Sequence[Recipe] = ()) -> Images:
    """Everything a cluster with real nodes needs that outlives it: packages, programs, images, `more` of them if asked.

    Raises:
        host.CannotRun: real nodes cannot run here; the sentence says why.
        CommandFailed: a build failed; the text ends with the end of its log.
    """
    host.check()
    host.install_packages(say)
    host.check_kernel()
    with locked("images"):
        log = cache_root() / LOG
        log.write_text("")
        # Compiling keeps all cores busy for most of its time and images wait for downloads for most of theirs.
        bare = [*_bare_recipes(), *more]
        with beside("images", _steps(bare, log), "programs", say) as say_program:
            programs = binaries.find_all(REAL, say_program)
        return _images([*_program_recipes(programs), *bare], log, say)


def start(name: str, machines: Sequence[str], simulated: Sequence[SimulatedMachine], prepared: Images, say: Say) -> RealCluster:
    """Bring up the cluster until its nodes are Ready and its DNS answers."""
    cluster = real.start(name, binaries.find, machines, prepared.root, prepared.names["pause"], say)
    kubectl = kubectl_of(cluster)
    kubectl.apply(Template((_MANIFESTS / "coredns.yaml").read_text()).substitute(image=prepared.names["coredns"]))
    with namespaces.network_of(cluster.spaces):
        kwok.add_nodes(connect(cluster.plane.kubeconfig), (kwok_node(machine) for machine in simulated))
    count = len(machines) + len(simulated)
    await_state(lambda: ready_nodes(kubectl) == count, f"{count} Ready nodes", 60)
    kubectl("wait", "--namespace=kube-system", "--for=condition=Available", "deployment/coredns", "--timeout=60s")
    return cluster


def kubectl_of(cluster: RealCluster) -> Kubectl:
    return Kubectl(binaries.find("kubectl"), cluster.kubeconfig)


def kwok_node(machine: SimulatedMachine) -> dict[str, object]:
    """A simulated node that ordinary pods keep away from."""
    return kwok.node(machine.name, machine.gpus, machine.machine, dict(machine.labels), tainted=True)


def ready_nodes(kubectl: Kubectl) -> int:
    return sum(condition(node, "Ready") for node in kubectl.items("nodes"))


def _program_recipes(programs: dict[str, Path]) -> list[Recipe]:
    return [images.program_recipe(programs["coredns"], 0), images.program_recipe(programs["kube-scheduler"], 65532)]


def _bare_recipes() -> list[Recipe]:
    """What needs no program; the one that takes longest first."""
    return [images.trainer_recipe(), images.pause_recipe(), *images.our_recipes()]


def _missing(recipes: list[Recipe]) -> list[Recipe]:
    """What the latest image store does not hold yet."""
    before = image_store.latest()
    return [recipe for recipe in recipes if before is None or recipe.stem not in before.stems]


def _steps(recipes: list[Recipe], log: Path) -> list[Step]:
    return [partial(images.build, recipe, Builder(log)) for recipe in _missing(recipes)]


def _images(recipes: list[Recipe], log: Path, say: Say) -> Images:
    """Build what is still missing and load it into the nodes' image store."""
    names = {recipe.stem: recipe.image for recipe in recipes}
    root = image_store.holding(names)
    if not root.exists():
        missing = _missing(recipes)
        archives = [images.build(recipe, Builder(log), say) for recipe in missing]
        say(f"loading {', '.join(recipe.name for recipe in missing)} into the nodes' image store")
        image_store.fill(names, archives, image_store.latest(), log)
        images.drop_archives()
    return Images(root, {recipe.name: recipe.image for recipe in recipes})
