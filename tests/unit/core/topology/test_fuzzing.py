"""A hundred thousand damaged inputs: each is read or refused by InvalidInput, nothing else ever comes out of a reader.

Mutations are drawn from seeded chance, which is cheap: a failure names its seed and number, and
`damaged(TEXTS, random.Random(seed))` gives the same inputs again.
"""

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.access import parse_access
from kompakt_core.topology.describe import read_description, read_matrices
from kompakt_core.topology.handwritten import graph_to_yaml, parse_handwritten
from kompakt_core.topology.machines import MACHINES, machine
from kompakt_core.topology.wire import graph_from_spec, graph_to_spec

INPUTS = 2_000  # of one test; 50 tests make 100,000
SEEDS = range(10)

SPACES = """\
        GPU0    GPU1    GPU2    mlx4_0  CPU Affinity
GPU0     X      PIX     SOC     PHB     0-9,20-29
GPU1    PIX      X      SOC     PHB     0-9,20-29
GPU2    SOC     SOC      X      SOC     10-19,30-39
mlx4_0  PHB     PHB     SOC      X
"""
TABS = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A\nGPU1\tNV12\t X \tSYS\tNODE\t16-31,144-159\t1\t\tN/A\n"
    "NIC0\tPXB\tSYS\t X \tSYS\t\t\t\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_2\n  NIC1: mlx5_0\n"
)
P2P = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tGNS\tX\t\n\nLegend:\n"
SHORT = "gpus: 4\nmodel: A100\nnumaNodes: [0, 0, 1, 1]\nlinks:\n- {kind: NV12, pairs: [0-1, 2-3]}\n- {kind: SYS}\n"
MATRICES = [SPACES, TABS, MACHINES["h100-sxm-4"].text, MACHINES["l40s-4"].text, MACHINES["desktop-5-mixed"].text]
YAMLS = [
    SHORT,
    "gpus: 3\nlinks:\n- {kind: NV2, among: [0, 1]}\n- {kind: SYS}\n",
    graph_to_yaml(machine("rtx8000-4")),
    "{gpus: 2, links: [{kind: XGMI, gigabytesPerSecond: 50}]}",
]
PLAIN_WORDS = """GPU0 GPU1 GPU7 X NV0 NV18 NV99 SYS OK GNS mlx5_0 NIC0 N/A 0-9 -1 ² ä { } [ ] *a ' " # gpus links kind null
    true 1.5 1e999 << | > %"""
WORDS = (
    *PLAIN_WORDS.split(),
    *("CPU Affinity", "\t", "\n", "\n\n", " ", "9" * 400, "\x00", "\x1b[4m", "\ud800", "\u2028", ": ", "- ", "&a ", "!!int "),
    *("---\n", "? "),
)


def damaged(texts: Sequence[str], chance: random.Random) -> str:
    """A text with one to four mutations: cut, doubled, swapped, cut short, or with a foreign word put in."""
    text = chance.choice(texts)
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.choice((0, 1, 1, 2, 5, 30)))
        action = chance.randrange(6)
        if action == 0:
            text = text[:start] + text[end:]
        elif action == 1:
            text = text[:end] + text[start:end] + text[end:]
        elif action == 2:
            text = text[:start] if chance.random() < 0.3 else text[start:] + text[:start]
        elif action == 3:
            lines = text.split("\n")
            chance.shuffle(lines)
            text = "\n".join(lines)
        else:
            text = text[:start] + chance.choice(WORDS) + text[end:]
    return text


def check(read: Callable[[Any], object], inputs: Iterator[Any]) -> None:
    """Every input is read or refused; some of each, or the mutations would test nothing."""
    read_well, sentences = 0, []
    for number, value in enumerate(inputs):
        try:
            read(value)
            read_well += 1
        except InvalidInput as error:
            sentences.append(str(error))
        except Exception as error:
            raise AssertionError(f"input {number} ends in {error!r}: {value!r}") from error
    assert read_well + len(sentences) == INPUTS
    assert read_well > INPUTS // 100
    assert len(sentences) > INPUTS // 10
    assert all(0 < len(sentence) < 2_000 for sentence in sentences)


READERS: dict[str, tuple[Callable[[str], object], Sequence[str]]] = {
    "matrices": (read_matrices, MATRICES),
    "p2p matrices": (parse_access, [P2P, P2P.replace("\t", "  ")]),
    "yaml": (parse_handwritten, YAMLS),
    "descriptions": (
        lambda text: read_description(text, "node"),
        ["dgx1-v100", SPACES + "\n" + P2P, TABS + "\n" + P2P, P2P + "\n" + TABS, SHORT],
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("read", "bases"), READERS.values(), ids=READERS)
def test_damaged_texts(read: Callable[[str], object], bases: Sequence[str], seed: int) -> None:
    chance = random.Random(seed)
    check(read, (damaged(bases, chance) for _ in range(INPUTS)))


ODD = (None, True, -1, 0, 1, 2, 63, 64, 1 << 70, 1.5, "", "X", "NVLink", "x" * 300, [], [None], {}, {"a": 0}, [[]], "OK", "u.1")


def places(value: Any) -> list[tuple[Any, Any]]:
    """(holder, key) of everything in a JSON value."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [found for key in keys for found in places(value[key])]


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_objects_of_the_api(seed: int) -> None:
    chance = random.Random(seed)
    graph = machine("rtx5090-2")
    base = graph_to_spec(graph, node_uid="u", source="text") | {"fabric": {"clusterUuid": "u", "cliqueId": 1}}
    base |= {"nics": [{"name": "mlx5_0", "numaNode": 0, "paths": ["PIX", "SYS"]}], "partitions": [{"id": 1, "moduleIds": [1, 2]}]}

    def inputs() -> Iterator[Any]:
        for _ in range(INPUTS):
            spec = copy.deepcopy(base)
            for _ in range(chance.randint(1, 3)):
                holder, key = chance.choice(places(spec))
                if chance.random() < 0.2:
                    del holder[key]
                else:
                    holder[key] = chance.choice(ODD)
            yield spec

    check(graph_from_spec, inputs())
