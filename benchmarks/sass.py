"""Counts machine instructions along one path of a kernel, from what nvdisasm prints; needs no GPU.

A path is told by what it moves: of all ways through the loop over tiles, the cheapest that has exactly so many 16-byte
and 8-byte loads or stores. Widths differ in these numbers, so they name the branch; what the branch does not need
(elements without a code) is on no cheapest way.

Rates are results a clock and multiprocessor of compute capability 9.0, from the table "Throughput of Native Arithmetic
Instructions" of NVIDIA's CUDA C++ Best Practices Guide; which unit runs an opcode is not in that table and follows the
table's rows by what the opcode does. Four schedulers issue 32 lanes each: 128 a clock.
"""

import heapq
import re
from dataclasses import dataclass

ISSUED = 128
# Results a clock and multiprocessor, by the first word of an opcode.
UNITS = {
    "fp32": (128, "FADD FMUL FFMA FADD2 FMUL2 FFMA2 HADD2 HMUL2 HFMA2"),
    "imad": (64, "IMAD IDP"),
    "alu": (64, "IADD IADD3 LOP LOP3 SHF SHL SHR PRMT SEL ISETP FSETP FMNMX IMNMX VIMNMX LEA IABS PLOP3 FSEL SGXT BMSK "
                "R2P P2R F2FP I2FP ISCADD FCHK VABSDIFF HSETP2 HMNMX2"),
    "slow": (16, "MUFU F2F F2I I2F FRND POPC FLO BREV REDUX"),
    "memory": (32, "LDG STG LD ST LDS STS ATOM ATOMG ATOMS RED SHFL LDL STL LDSM"),
}  # fmt: skip
UNIT_OF = {opcode: unit for unit, (_, opcodes) in UNITS.items() for opcode in opcodes.split()}
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
LABEL = re.compile(r"^\s*(\.L[\w.$]*):")
JUMPS = frozenset(("BRA", "BRX", "BRXU", "JMP", "EXIT", "RET"))
PREDICATE = re.compile(r"\bU?P\d")
TARGET = re.compile(r"\(?(\.L[\w.$]+)\)?")
Moves = tuple[int, int]


class NoPath(ValueError):
    """No way through the loop moves what was asked for."""


@dataclass(frozen=True)
class Instruction:
    guarded: bool
    opcode: str
    operands: str

    @property
    def name(self) -> str:
        return self.opcode.split(".")[0]

    @property
    def unit(self) -> str:
        """ "other": the uniform datapath, control, and what only takes a place among those issued."""
        return UNIT_OF.get(self.name, "other")

    @property
    def slots(self) -> float:
        """What its unit needs for it, in issue slots. L1 moves 128 bytes a clock: 16 bytes a lane take as long as 4 times 4."""
        if self.unit == "other":
            return 1
        wide = 4 if ".128" in self.opcode else 2 if ".64" in self.opcode else 1
        return ISSUED / UNITS[self.unit][0] * (wide if self.unit == "memory" else 1)


@dataclass(frozen=True)
class Block:
    """Instructions that run one after another; `following`: the blocks that may come next."""

    instructions: tuple[Instruction, ...]
    following: tuple[int, ...]


@dataclass(frozen=True)
class Count:
    """Instructions of a path for one lane, by unit; `instructions`: all of them."""

    instructions: tuple[Instruction, ...]
    elements: int

    def of(self, unit: str) -> float:
        return sum(one.unit == unit for one in self.instructions) / self.elements

    def wide(self, name: str) -> int:
        """Accesses of 16 bytes a lane."""
        return sum(one.name == name and ".128" in one.opcode for one in self.instructions)

    @property
    def issued(self) -> float:
        return len(self.instructions) / self.elements

    @property
    def weighted(self) -> float:
        """Issue slots an element, where a conversion or its like counts for as many as its unit is slower than the schedulers."""
        return sum(one.slots if one.unit == "slow" else 1 for one in self.instructions) / self.elements

    @property
    def limit(self) -> tuple[float, str]:
        """Issue slots an element that the busiest unit needs, and which it is: "issue" for the schedulers themselves."""
        slots = {unit: sum(one.slots for one in self.instructions if one.unit == unit) / self.elements for unit in UNITS}
        return max([*((need, unit) for unit, need in slots.items()), (self.issued, "issue")])


def blocks(text: str) -> list[Block]:
    """The graph of one kernel as `nvdisasm -c` prints it."""
    runs: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    for line in text.splitlines():
        label, found = LABEL.match(line), INSTRUCTION.search(line)
        if label:
            if runs[-1]:
                runs.append([])
            labels[label[1]] = len(runs) - 1
        elif found:
            runs[-1].append(Instruction(bool(found[2]), found[3], found[4].strip()))
            if found[3].split(".")[0] in JUMPS:
                runs.append([])
    return [Block(tuple(run), _following(run, place, labels, len(runs))) for place, run in enumerate(runs)]


def _following(run: list[Instruction], place: int, labels: dict[str, int], count: int) -> tuple[int, ...]:
    after = (place + 1,) if place + 1 < count else ()
    last = run[-1] if run else None
    if last is None or last.name not in JUMPS:
        return after
    # BRA.DIV goes to where lanes that drifted apart are gathered: warps here never do.
    conditional = last.guarded or bool(PREDICATE.search(last.operands.split("`")[0]))
    targets = TARGET.findall(last.operands)
    if last.opcode.startswith("BRA.DIV") or last.name in ("EXIT", "RET"):
        return after if last.guarded or last.opcode.startswith("BRA.DIV") else ()
    aims = tuple(labels[target] for target in targets if target in labels)
    return tuple(dict.fromkeys((*aims, *(after if conditional else ()))))


def loop(graph: list[Block]) -> tuple[int, frozenset[int]]:
    """The loop over tiles: of all loops the one with most instructions; its first block, and all of them."""
    before: dict[int, list[int]] = {}
    for place, block in enumerate(graph):
        for aim in block.following:
            before.setdefault(aim, []).append(place)
    bodies = [(first, _body(first, last, before)) for last, first in _backwards(graph)]
    bodies = [one for one in bodies if len(one[1]) > 1 or len(graph[one[0]].instructions) > 1]
    if not bodies:
        raise NoPath("there is no loop")
    return max(bodies, key=lambda one: sum(len(graph[place].instructions) for place in one[1]))


def _backwards(graph: list[Block]) -> list[tuple[int, int]]:
    """Jumps to a block on the way by which the jump was reached: where a loop ends, and where it begins."""
    found, done, way = [], set(), [(0, iter(graph[0].following))]
    on_way = {0}
    while way:
        place, rest = way[-1]
        aim = next(rest, None)
        if aim is None:
            way.pop()
            on_way.discard(place)
            done.add(place)
        elif aim in on_way:
            found.append((place, aim))
        elif aim not in done:
            way.append((aim, iter(graph[aim].following)))
            on_way.add(aim)
    return found


def _body(first: int, last: int, before: dict[int, list[int]]) -> frozenset[int]:
    inside, left = {first}, [last]
    while left:
        place = left.pop()
        if place not in inside:
            inside.add(place)
            left += before.get(place, [])
    return frozenset(inside)


def moved(block: Block, name: str) -> Moves:
    """How many 16-byte and 8-byte accesses of this kind a block has."""
    kinds = [one.opcode for one in block.instructions if one.name == name]
    return sum(".128" in kind for kind in kinds), sum(".64" in kind for kind in kinds)


def path(graph: list[Block], name: str, wanted: Moves, elements: int) -> Count:
    """The cheapest way through the loop over tiles with exactly the wanted accesses `name` (LDG or STG)."""
    first, inside = loop(graph)
    heap: list[tuple[int, int, Moves, tuple[int, ...]]] = [(0, first, (0, 0), ())]
    seen: set[tuple[int, Moves]] = set()
    while heap:
        cost, place, so_far, way = heapq.heappop(heap)
        wide, narrow = moved(graph[place], name)
        now = (so_far[0] + wide, so_far[1] + narrow)
        if (place, now) in seen or now[0] > wanted[0] or now[1] > wanted[1]:
            continue
        seen.add((place, now))
        way = (*way, place)
        cost += len(graph[place].instructions)
        if first in graph[place].following and now == wanted:
            return Count(tuple(one for block in way for one in graph[block].instructions), elements)
        for aim in graph[place].following:
            if aim in inside and aim not in way:
                heapq.heappush(heap, (cost, aim, now, way))
    raise NoPath(f"no way through the loop has {wanted[0]} accesses {name} of 16 bytes and {wanted[1]} of 8")
