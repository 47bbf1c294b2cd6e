"""`helm uninstall` with crds.keep=false: all TrainingJobs end before their definition goes.

Their pods go by Kubernetes' garbage collector, which must still know what a TrainingJob is when it hears of their end. Waits
until every pod of a job is gone: after this Job the admission policies go too, and until then they guard those pods.
Arguments: the API server's URL, the folder of a service account (token, ca.crt), for how many seconds to try.
"""

import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

API = "/apis/kompakt.dev/v1alpha1"
PAGE = 200
LOOK = 0.5  # seconds
Object = dict[str, Any]


def main(server: str, account: str, seconds: str) -> None:
    folder, end = Path(account), time.monotonic() + float(seconds)
    trust = ssl.create_default_context(cafile=folder / "ca.crt")
    headers = {"Authorization": f"Bearer {(folder / 'token').read_text().strip()}", "Content-Type": "application/json"}

    def ask(method: str, path: str, body: Object | None = None) -> Object:
        """The answer; {} where there is no such thing, or where it is not as it was seen: the next look shows what there is."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(server + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=trust) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as refusal:
            if refusal.code not in (404, 409):
                raise
            return {}

    def all_of(path: str, selector: str = "") -> Iterator[Object]:
        token = ""
        while True:
            page = ask("GET", f"{path}?limit={PAGE}&labelSelector={selector}&continue={token}")
            yield from page.get("items", ())
            token = page.get("metadata", {}).get("continue", "")
            if not token:
                return

    def end_jobs() -> int:
        jobs = [job["metadata"] for job in all_of(f"{API}/trainingjobs")]
        for meta in jobs:
            if "deletionTimestamp" not in meta:
                seen = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
                options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "preconditions": seen}
                if ask("DELETE", f"{API}/namespaces/{meta['namespace']}/trainingjobs/{meta['name']}", options):
                    print(f"TrainingJob {meta['namespace']}/{meta['name']} deleted", flush=True)
        return len(jobs)

    def staying() -> list[str]:
        """Pods that a job controlled, those that are on their way too."""
        pods = [pod["metadata"] for pod in all_of("/api/v1/pods", "kompakt.dev/job-uid")]
        owned = [meta for meta in pods if any(map(controls, meta.get("ownerReferences", ())))]
        return [f"{meta['namespace']}/{meta['name']}" for meta in owned]

    while (jobs := end_jobs()) or (left := staying()):
        if time.monotonic() > end:
            sys.exit(f"after {seconds} s: {jobs} TrainingJobs" if jobs else f"after {seconds} s: pods {', '.join(left[:5])} stay")
        time.sleep(LOOK)
    print("no TrainingJob is left, nor a pod of one", flush=True)


def controls(owner: Object) -> bool:
    """Whether an owner is a TrainingJob that is the object's controller; its labels anybody may give it."""
    job = owner["kind"] == "TrainingJob" and owner["apiVersion"].startswith("kompakt.dev/")
    return job and owner.get("controller") is True


main(*sys.argv[1:])
