"""Manifests that a hostile tenant may send: a grammar over pods, jobs, Services, claims and what else may carry our names.

A manifest is mostly well-formed, so that the API server takes it, with a few parts that mean harm: forged names, labels, owners
and annotations of ours, numbers at borders, texts of many bytes, all of Unicode, thousands of edges, tolerations and terms.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_core import contract as c
from tests.support.cluster.manifests import Chance
from tests.support.crds import schema

Object = dict[str, Any]
PATHS: Final = {
    "pods": "/api/v1/namespaces/{}/pods",
    "services": "/api/v1/namespaces/{}/services",
    "configmaps": "/api/v1/namespaces/{}/configmaps",
    "secrets": "/api/v1/namespaces/{}/secrets",
    "persistentvolumeclaims": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "poddisruptionbudgets": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "trainingjobs": "/apis/kompakt.dev/v1alpha1/namespaces/{}/trainingjobs",
    "resourceclaims": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
}
KINDS: Final = ("pods", "trainingjobs", "trainingjobs", *PATHS)  # the first two more often
WORDS: Final = (
    *("", "x", "-1", "0", "1e309", "NaN", "9" * 400, "0.5", "1Ki", "true", "null", "[]", "{}", "..", "../../etc/passwd"),
    *("{{ .Values }}", "$(id)", "%s%n", "' OR 1=1", "a\nb: c", "a\tb", "\u0000", "\u202eabc", "\ufeff", "\u200b" * 40),
    *("ü" * 60, "\U0001f988" * 60, "क्षि" * 40, "\u0301" * 200, "a" * 63, "a" * 64, "a" * 253, "a,b,,c", "," * 3000),
    *("[" * 4000, '{"a":' * 900, '[{"from":0,"to":1,"weight":1e308}]', "GPU-00000000-0000-0000-0000-000000000000"),
)
AMOUNTS: Final = (*("1", "1", "2") * 3, "8", "9", "0", "-1", "0.5", "1e3", "1Ki", "9" * 30, "1e30", "x")
CLASSES: Final = ("", "", "", "", "absent", "system-node-critical", "system-cluster-critical")
HUGE: Final = 0.02  # share of texts and lists that are as large as a request may be


@dataclass(frozen=True, slots=True)
class Manifest:
    """One request of the tenant."""

    plural: str
    body: Object


@dataclass(slots=True)
class HostileChance:
    """Makes manifests. `victim`: name and uid of a job of somebody else; `gpus`: those that it holds."""

    random: random.Random
    namespace: str
    victim: tuple[str, str]
    gpus: tuple[str, ...]
    made: int = 0

    def manifest(self) -> Manifest:
        """The next one."""
        self.made += 1
        plural = self.random.choice(KINDS)
        body = self._job() if plural == "trainingjobs" else self._plain(plural)
        body["metadata"] = self._metadata(body.get("metadata", {}))
        return Manifest(plural, body)

    def change(self, plural: str) -> Object:
        """A merge patch of something that stands there."""
        metadata = {"annotations": self._annotations(), "labels": self._labels()}
        suspend = {"spec": {"suspend": self._odds(0.5)}} if plural == "trainingjobs" else {}
        status = {"status": {"phase": "Succeeded", "scheduling": {"victims": [self.victim[1]]}}} if self._odds(0.2) else {}
        return {"metadata": metadata, **suspend, **status}

    def _odds(self, share: float) -> bool:
        return self.random.random() < share

    def _word(self) -> str:
        if self._odds(HUGE):
            return self.random.choice(("h", "ü", "\U0001f988", "[", ",")) * self.random.randint(5_000, 200_000)
        return self.random.choice((*WORDS, *self.gpus, *self.victim))

    def _many(self, most: int) -> int:
        return most if self._odds(HUGE) else self.random.choice((0, 1, 1, 2, 5, 40))

    def _metadata(self, given: Object) -> Object:
        """Mostly its own: what forges ours is mostly refused, and what is refused shows less than what stands there."""
        name = given.get("name", "") if self._odds(0.03) else self.victim[0] if self._odds(0.05) else f"h-{self.made}"
        made = {"name": name, "namespace": self.namespace}
        if self._odds(0.25):
            made["labels"] = self._labels()
        if self._odds(0.5):
            made["annotations"] = self._annotations()
        if self._odds(0.1):
            owner = {"apiVersion": c.API_VERSION, "kind": c.JOB_KIND, "name": self.victim[0], "uid": self.victim[1]}
            made["ownerReferences"] = [{**owner, "controller": self._odds(0.7), "blockOwnerDeletion": self._odds(0.3)}]
        return made

    def _labels(self) -> Object:
        """The job's of somebody else, or nonsense that the API server still takes."""
        true = dict(zip(c.WORKER_LABELS, (*self.victim, "worker", "0", "1"), strict=True))
        chosen = {key: value for key, value in true.items() if self._odds(0.7)}
        wrong = (
            {self.random.choice(c.WORKER_LABELS): self.random.choice(("", "-1", "a" * 63, "9" * 20))} if self._odds(0.3) else {}
        )
        return chosen | wrong

    def _annotations(self) -> Object:
        names = sorted(c.INPUT_ANNOTATIONS | (c.OUTPUT_ANNOTATIONS if self._odds(0.1) else set()))
        found = {name: self._word() for name in names if self._odds(0.3)}
        if self._odds(0.2):
            found[c.ANN_EDGES] = json.dumps(self._edges())
        if self._odds(0.1):
            found[f"example.com/{self.made}"] = self._word()
        return found

    def _edges(self) -> list[Object]:
        ends = (0, 1, 2, 3, 7, -1, 8, 1 << 31, 1 << 70, 0.5, "0")
        weights = (1, 2, 1000, 0, -1, 1 << 62, 1e308, 0.1, "1")
        one, count = self.random.choice, self._many(9_000)
        return [{"from": one(ends), "to": one(ends), "weight": one(weights)} for _ in range(count)]

    def _job(self) -> Object:
        chance = Chance(
            self.random, oddity=self.random.choice((0.0, 0.003, 0.03)), seconds=self.random.choice(("0.1", "2", "60"))
        )
        job = chance.manifest(schema("trainingjobs", "spec"), f"h-{self.made}")
        if self._odds(0.3):
            job["spec"]["communication"] = {"pattern": "Custom", "customEdges": {"scope": "Gang", "edges": self._edges()}}
        roles = job["spec"].get("roles")
        for role in filter(lambda one: isinstance(one, dict), roles if isinstance(roles, list) else ()):
            if self._odds(0.2):
                role["replicas"] = self.random.choice((0, 1, 60, 1024, 8192, -1))
            if isinstance(role.get("template"), dict) and self._odds(0.3):
                role["template"] = {"metadata": {"annotations": self._annotations()}, "spec": self._pod()}
        return job

    def _plain(self, plural: str) -> Object:
        makers: Mapping[str, Callable[[], Object]] = {
            "pods": lambda: {"spec": self._pod()},
            "services": lambda: {"spec": {"clusterIP": "None", "selector": self._labels(), "ports": [{"port": 29500}]}},
            "configmaps": lambda: {"data": {"a": self._word()}},
            "secrets": lambda: {"stringData": {"a": self._word()}},
            "persistentvolumeclaims": self._volume_claim,
            "poddisruptionbudgets": lambda: {"spec": {"maxUnavailable": 0, "selector": {"matchLabels": self._labels()}}},
            "resourceclaims": self._resource_claim,
        }
        return makers[plural]()

    def _volume_claim(self) -> Object:
        storage = {"requests": {"storage": self.random.choice(("1Gi", "0", "9Ei"))}}
        return {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": storage}}

    def _resource_claim(self) -> Object:
        expression = self.random.choice(
            ("device.driver == 'gpu.nvidia.com'", "true", "device.attributes['a'].b == 1", self._word())
        )
        exactly = {"deviceClassName": "gpu.nvidia.com", "selectors": [{"cel": {"expression": expression}}]}
        return {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}

    def _pod(self) -> Object:
        odd: Mapping[str, Callable[[], Any]] = {
            "schedulingGates": lambda: [{"name": self.random.choice((c.GATE, "example.com/never"))}],
            "affinity": self._affinity,
            "tolerations": lambda: [{"operator": "Exists", "key": f"k{n}"} for n in range(self._many(20_000))],
            "nodeSelector": lambda: {
                self.random.choice((c.LABEL_MACHINE, c.LABEL_RACK, "type")): self.random.choice(("a", "kwok"))
            },
            "priorityClassName": lambda: self.random.choice(CLASSES),
            "nodeName": lambda: self.random.choice(("dgx-0", "absent")),
            "resourceClaims": lambda: [{"name": "gpu", "resourceClaimName": f"h-{self.made - 1}"}],
            "volumes": lambda: [{"name": "v", "persistentVolumeClaim": {"claimName": f"h-{self.made - 1}"}}],
            "hostname": lambda: "h",
            "terminationGracePeriodSeconds": lambda: self.random.choice((0, 1, 1 << 40)),
        }
        usual = {"schedulerName": self.random.choice((c.SCHEDULER_NAME, "default-scheduler")), "restartPolicy": "Never"}
        return {"containers": [self._container()], **usual, **{key: make() for key, make in odd.items() if self._odds(0.08)}}

    def _container(self) -> Object:
        made: Object = {"name": "trainer", "image": self.random.choice(("simulated", "simulated", "simulated", "a" * 300))}
        if self._odds(0.7):
            made["resources"] = {"limits": {c.RESOURCE: self.random.choice(AMOUNTS)}}
        if self._odds(0.2):
            made["env"] = [{"name": c.ENV_NVIDIA_VISIBLE, "value": "all"}, {"name": f"A{self.made}", "value": self._word()}]
        return made

    def _affinity(self) -> Object:
        values = [f"v{number}" for number in range(max(1, self._many(60_000)))]
        expression = {"key": self.random.choice(("kubernetes.io/hostname", "a")), "operator": "NotIn", "values": values}
        terms = [{"matchExpressions": [expression]} for _ in range(1 if len(values) > 40 else max(1, self._many(300)))]
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
