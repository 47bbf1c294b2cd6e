"""What benchmarks.client_libraries runs inside the environment of one library: only that library is installed there.

Each library is one function `asker(kubeconfig)`: it returns two functions, one lists pods once, one follows a watch to its end.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Asker = Callable[[str], tuple[Callable[[], int], Callable[[], int]]]
BEFORE = time.process_time()


def lightkube() -> Asker:
    import lightkube
    from lightkube.resources.core_v1 import Pod

    def asker(kubeconfig: str) -> Any:
        client = lightkube.Client(lightkube.KubeConfig.from_file(kubeconfig))
        watch = client.watch(Pod, namespace="*", resource_version="1")
        return lambda: len(list(client.list(Pod, namespace="*"))), lambda: counted(watch, lambda event: event[1].metadata.name)

    return asker


def kr8s() -> Asker:
    import kr8s
    from kr8s.objects import Pod

    def asker(kubeconfig: str) -> Any:
        api = kr8s.api(kubeconfig=kubeconfig)
        watch = api.watch("pods", namespace=kr8s.ALL)
        assert Pod
        return lambda: len(list(api.get("pods", namespace=kr8s.ALL))), lambda: counted(watch, lambda event: event[1].name)

    return asker


def kubernetes_asyncio() -> Asker:
    from kubernetes_asyncio import client, config, watch

    loop = asyncio.new_event_loop()

    async def connect(kubeconfig: str) -> Any:
        return client.CoreV1Api(await config.new_client_from_config(kubeconfig))

    async def follow(api: Any) -> int:
        seen, following = 0, watch.Watch()
        async for event in following.stream(api.list_pod_for_all_namespaces, resource_version="1"):
            seen += 1
            if event["object"].metadata.name == "last":
                break
        return seen

    def asker(kubeconfig: str) -> Any:
        api = loop.run_until_complete(connect(kubeconfig))
        ask = lambda: len(loop.run_until_complete(api.list_pod_for_all_namespaces()).items)  # noqa: E731
        return ask, lambda: loop.run_until_complete(follow(api))

    return asker


def kubernetes() -> Asker:
    from kubernetes import client, config, watch

    def asker(kubeconfig: str) -> Any:
        api: Any = client.CoreV1Api(config.new_client_from_config(kubeconfig))
        stream: Callable[[], Any] = lambda: watch.Watch().stream(api.list_pod_for_all_namespaces, resource_version="1")  # noqa: E731
        ask = lambda: len(api.list_pod_for_all_namespaces().items)  # noqa: E731
        return ask, lambda: counted(stream(), lambda event: event["object"].metadata.name)

    return asker


def kompakt_client() -> Asker:
    """Only urllib3 and msgspec are installed, and our own packages."""
    import msgspec
    import urllib3

    from kompakt_client.connections import find

    class Meta(msgspec.Struct):
        name: str = ""

    class Thing(msgspec.Struct):
        metadata: Meta

    class Event(msgspec.Struct):
        object: Thing

    class Page(msgspec.Struct):
        items: list[Thing]

    def asker(kubeconfig: str) -> Any:
        endpoint = find(kubeconfig)

        def get(query: str, **more: Any) -> Any:
            url = f"{endpoint.server}/api/v1/pods{query}"
            answer = endpoint.pool.request("GET", url, headers=dict(endpoint.headers()), retries=False, **more)
            assert answer.status == 200, answer.status
            return answer

        def events() -> Iterator[Event]:
            rest = b""
            for chunk in get("?watch=1", preload_content=False, timeout=urllib3.Timeout(read=60)).stream(1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (msgspec.json.decode(line, type=Event) for line in lines if line)

        ask = lambda: len(msgspec.json.decode(get("").data, type=Page).items)  # noqa: E731
        return ask, lambda: counted(events(), lambda event: event.object.metadata.name)

    return asker


def aiohttp() -> Asker:
    """As kopf works: the transport alone, JSON by the standard library. It reads no kubeconfig by itself."""
    import aiohttp

    loop = asyncio.new_event_loop()

    async def ask(server: str) -> int:
        async with aiohttp.ClientSession() as session, session.get(f"{server}/api/v1/pods") as answer:
            return len((await answer.json())["items"])

    async def follow(server: str) -> int:
        seen = 0
        async with aiohttp.ClientSession() as session, session.get(f"{server}/api/v1/pods?watch=1") as answer:
            async for line in answer.content:
                seen += 1
                if json.loads(line)["object"]["metadata"]["name"] == "last":
                    break
        return seen

    def asker(kubeconfig: str) -> Any:
        with open(kubeconfig) as file:
            server = next(line.split()[-1] for line in file if "server:" in line)
        if not server.startswith("http:"):
            raise NotImplementedError("reads no kubeconfig by itself")
        return lambda: loop.run_until_complete(ask(server)), lambda: loop.run_until_complete(follow(server))

    return asker


def counted(events: Any, name: Callable[[Any], str]) -> int:
    """How many there are up to the one that is called last."""
    for number, event in enumerate(events, 1):
        if name(event) == "last":
            return number
    raise AssertionError("the watch ended before its last event")


def resident() -> float:
    """This process's memory in MB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def weigh(make: Callable[[], Asker], kubeconfig: str) -> dict[str, float]:
    """Memory and processor time of import, one list of pods, and a watch to its end."""
    asker = make()
    found = {"import_seconds": time.process_time() - BEFORE, "imported": resident()}
    ask, follow = asker(kubeconfig)
    ask()
    began = time.process_time()
    events = follow()
    return {**found, "watching": resident(), "event_us": (time.process_time() - began) / events * 1e6}


def attempt(make: Callable[[], Asker], kubeconfig: str) -> dict[str, str]:
    """Two lists; between them the harness may change the credentials. It sees who asks."""
    ask, _ = make()(kubeconfig)
    ask()
    open(f"{kubeconfig}.asked", "w").close()
    while os.path.exists(f"{kubeconfig}.asked"):
        time.sleep(0.02)
    ask()
    return {"done": "yes"}


if __name__ == "__main__":
    what, library, path = sys.argv[1:4]
    chosen = globals()[library]
    print(json.dumps((weigh if what == "weigh" else attempt)(chosen, path)))
