"""Random TrainingJobs, made from the resource's own schema: mostly what it allows, now and then something else.

Plain choices of chance rather than hypothesis: that took 30 ms for one manifest, more than the API server needs to judge it.
"""

import random
from dataclasses import dataclass
from typing import Any

from kompakt_core.contract import API_VERSION, JOB_KIND
from tools.kube.kwok import SECONDS_ANNOTATION

Schema = dict[str, Any]
ODDITIES = (None, True, -1, 1 << 62, 0.5, "", "x", "\u0000\u1234", [], {}, [{}], [[]], {"a": {"b": []}})
# What a pattern or a rule asks of a text is not in its type. The first one is right.
TEXTS: dict[str, tuple[Any, ...]] = {
    "targetGradientError": ("0.01", ".1", "0.05", "0.0999", "0.1", "0.2", "0", "1e-3", "0.0"),
    "memoryBudget": ("20Gi", "80%", "1.5Gi", "1", "100%", "0", "0.5", "101%", "20GiB", "1Gi\n", "-1Gi", "٣Gi"),
    "modules": ("head.*", "*", "a.b"),
    "containerName": ("trainer", "absent"),
    "gpuContainer": ("trainer", "second", "absent"),
    "priorityClassName": ("", "system-node-critical", "absent"),
    "managedBy": ("kompakt.dev/operator", "example.com/other"),
    "targetRoles": ("worker", "reader", "absent"),
    "sharedMemory": ("1Gi", "64M", 4096, "0", "1e3", "1.5Gi", "100m", "-1", "x", "9" * 30),
    "gradientBytes": ("102M", 5),
    "name": ("worker",),  # of a role: chosen for the whole list
}
ROLES = ("worker", "reader", "ps", "a-1")
WRONG_NAMES = ("Worker", "a" * 17, "-", "", "a.b")
AMOUNTS = ("1", "500m", "2Gi", "1e2", "0", "-1", "x")
RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "kompakt.dev/gpu", "nvidia.com/mig-1g.5gb", "a b")
VARIABLES = ("A", "PYTHONPATH", "MASTER_ADDR", "KOMPAKT_MODE", "=", "")


@dataclass(slots=True)
class Chance:
    """Makes manifests. `oddity`: how often a leaf, or a part of a template, is something that nobody should write."""

    random: random.Random
    oddity: float = 0.01
    seconds: str = "0.1"

    def manifest(self, schema: Schema, name: str = "fuzz") -> dict[str, Any]:
        """A whole TrainingJob; its simulated pods run `seconds`."""
        spec = self._object(schema)
        if self._odd():
            name = self.random.choice(("a" * 41, "A", "1", "a.b", "a-"))
        return {"apiVersion": API_VERSION, "kind": JOB_KIND, "metadata": {"name": name}, "spec": spec}

    def _odd(self) -> bool:
        return self.random.random() < self.oddity

    def _value(self, schema: Schema, name: str) -> Any:
        if self._odd():
            return self.random.choice(ODDITIES)
        if name == "template":
            return self._template()
        if "enum" in schema:
            return self._word(schema)
        kinds = {"object": self._object, "integer": self._integer, "boolean": lambda _: self.random.random() < 0.2}
        if schema.get("type") in kinds:
            return kinds[schema["type"]](schema)
        if schema.get("type") == "array":
            return self._roles(schema) if name == "roles" else self._list(schema, name)
        return self._one(TEXTS[name])

    def _one(self, choices: tuple[Any, ...]) -> Any:
        """Half of the time the first."""
        return choices[0] if self.random.random() < 0.5 else self.random.choice(choices)

    def _word(self, schema: Schema) -> Any:
        default = schema.get("default", schema["enum"][0])
        return self._one((default, *schema["enum"]))

    def _integer(self, schema: Schema) -> int:
        """Small ones, and rarely one at a border or past it."""
        low, high = schema.get("minimum", 0), schema.get("maximum", 1 << 40)
        if self._odd():
            return int(self.random.choice((low, high, low - 1, high + 1)))
        return int(min(high, low + self.random.choice((0, 0, 1, 1, 2, 4))))

    def _list(self, schema: Schema, name: str) -> list[Any]:
        return [self._value(schema["items"], name) for _ in range(schema.get("minItems", 0) + self.random.choice((0, 1, 2)))]

    def _object(self, schema: Schema) -> dict[str, Any]:
        required = set(schema.get("required", ()))
        chosen = [key for key in schema["properties"] if (key in required and not self._odd()) or self.random.random() < 0.15]
        return {key: self._value(schema["properties"][key], key) for key in chosen}

    def _roles(self, schema: Schema) -> list[Any]:
        """The first has GPUs, most of the time."""
        names = self.random.sample(ROLES, self.random.choice((1, 1, 1, 2, 3)))
        roles = [{**self._object(schema["items"]), "name": name} for name in names]
        if not self._odd():
            roles[0]["gpusPerReplica"] = self.random.choice((1, 2, 4))
        if self._odd():
            roles[0]["name"] = self.random.choice(WRONG_NAMES)
        return roles

    def _template(self) -> dict[str, Any]:
        notes: dict[str, str] = {SECONDS_ANNOTATION: self.seconds, **({"kompakt.dev/gpus": "GPU-x"} if self._odd() else {})}
        labels = {"kompakt.dev/attempt": "9"} if self._odd() else {}
        return {"metadata": {"annotations": notes, "labels": labels}, "spec": self._pod()}

    def _pod(self) -> dict[str, Any]:
        names = ("trainer", "second")[: self.random.choice((1, 1, 2))]
        odd = {
            "containers": [],
            "initContainers": [self._container("kompakt-runtime")],
            "schedulerName": "default-scheduler",
            "restartPolicy": "OnFailure",
            "nodeName": "dgx-0",
            "hostname": "h",
            "terminationGracePeriodSeconds": -1,
            "securityContext": {"runAsUser": -1},
            "priorityClassName": "absent",
            "volumes": [{"name": "kompakt-shm", "emptyDir": {}}],
            "noSuchField": 1,
        }
        usual = {
            "initContainers": [self._container("first")],
            "schedulerName": "kompakt-scheduler",
            "nodeSelector": {"type": "kwok"},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "v", "emptyDir": {}}],
        }
        return (
            {"containers": [self._container(name) for name in names]}
            | {key: value for key, value in usual.items() if self.random.random() < 0.1}
            | {key: value for key, value in odd.items() if self._odd()}
        )

    def _container(self, name: str) -> dict[str, Any]:
        odd = {
            "image": "",
            "restartPolicy": "Sometimes",
            "volumeMounts": [{"name": "absent", "mountPath": "/dev/shm"}],
            "resources": {self.random.choice(("limits", "requests")): {self.random.choice(RESOURCES): self._one(AMOUNTS)}},
            "env": [{"name": self.random.choice(VARIABLES), "value": "x"}],
            "envFrom": [{"secretRef": {"name": "absent"}}],
        }
        usual = {"env": [{"name": "A", "value": "1"}], "resources": {"limits": {"memory": "2Gi"}}, "command": ["train"]}
        return (
            {"name": name, "image": "simulated"}
            | {key: value for key, value in usual.items() if self.random.random() < 0.2}
            | {key: value for key, value in odd.items() if self._odd()}
        )
