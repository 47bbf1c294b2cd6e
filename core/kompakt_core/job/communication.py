"""`spec.communication`: what a job's GPUs exchange."""

from typing import Annotated, ClassVar

from msgspec import field

from kompakt_core.contract.words import Sensitivity
from kompakt_core.job import rejections
from kompakt_core.job.choices import MAX_EDGE_RANK, MAX_EDGES, EdgeScope
from kompakt_core.job.quantity import QUANTITY_SCHEMA, parse_bytes
from kompakt_core.patterns.names import Pattern
from kompakt_core.schema.meta import Declared, ValidationRule, about, unless


class WeightedEdge(Declared, frozen=True):
    """One pair of GPUs that exchange data."""

    start: Annotated[int, about("Rank of one GPU of the pair.", low=0, high=MAX_EDGE_RANK, example=0)] = field(name="from")
    end: Annotated[int, about("Rank of the other GPU of the pair.", low=0, high=MAX_EDGE_RANK, example=1)] = field(name="to")
    weight: Annotated[
        int,
        about(
            "Shares of the traffic that go over this edge.",
            unit="shares",
            low=1,
            high=1_000_000,
            example=3,
        ),
    ] = 1

    RULES: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule("self.from != self.to", rejections.EDGE_SELF, unless(lambda edge: edge.start != edge.end, "to")),
    )


class CustomEdges(Declared, frozen=True, kw_only=True):
    """The edges of pattern Custom."""

    scope: Annotated[
        EdgeScope,
        about(
            "What ranks count. Pod: the GPUs of one pod, and all GPU pods communicate alike. Gang: the GPUs of the whole gang, "
            "worker by worker in the order of roles.",
            example="Gang",
        ),
    ] = EdgeScope.POD
    edges: Annotated[
        tuple[WeightedEdge, ...],
        about(
            "Pairs of GPUs that exchange data. Direction does not matter.",
            shortest=1,
            longest=MAX_EDGES,
            example=[{"from": 0, "to": 1, "weight": 3}],
        ),
    ]


class Communication(Declared, frozen=True):
    """What the job's GPUs exchange. `gradient_bytes` -1: not said."""

    pattern: Annotated[
        Pattern,
        about(
            "Shape of the communication between the GPUs of the job. GPUs and links are chosen for it. "
            "Ring and Tree: all-reduce. Chain: pipeline. Star: one GPU talks to all others. Clique and AllToAll: every pair. "
            "None: no communication. Custom: the pairs in customEdges.",
            example="Ring",
        ),
    ] = Pattern.RING
    custom_edges: (
        Annotated[CustomEdges, about("The pairs of GPUs that communicate. Required with pattern Custom, refused with any other.")]
        | None
    ) = None
    sensitivity: Annotated[
        Sensitivity,
        about(
            "How much slow links slow the job down; decides how good a set of GPUs must be and how long the gang waits for a "
            "better place. Auto: from the steps of earlier attempts (see injection) or from the annotation kompakt.dev/profile.",
            example="High",
        ),
    ] = field(default=Sensitivity.AUTO, name="bandwidthSensitivity")
    gradient_bytes: Annotated[
        int,
        about(
            "Size of the gradients that one step of one rank exchanges. Counts before what is measured. "
            "Absent: measured while the job runs.",
            unit="bytes, as a Kubernetes quantity",
            example="102M",
            read=parse_bytes,
            schema=QUANTITY_SCHEMA,
        ),
    ] = -1

    RULES: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "has(self.customEdges) == (self.pattern == 'Custom')",
            rejections.EDGES_WITHOUT_CUSTOM,
            unless(lambda found: (found.custom_edges is not None) == (found.pattern is Pattern.CUSTOM), "customEdges"),
        ),
    )


# What a job without the block has: its GPUs do not talk to each other.
NO_COMMUNICATION = Communication(Pattern.NONE, None, Sensitivity.LOW)
