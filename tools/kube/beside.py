"""Two long pieces of work at once, told on one terminal: each line names the one it belongs to."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

Say = Callable[[str], None]
Step = Callable[[Say], object]


@contextmanager
def beside(label: str, steps: Sequence[Step], own: str, say: Say) -> Iterator[Say]:
    """Take `steps` in a thread while the block runs; yields what the block says its own lines with.

    1. The block ends only when all steps are taken.
    2. A step that fails ends the block at the next line it says, so that an hour is not spent on half of what is needed.
    3. A block that fails ends the steps after the present one, which is let finish: what it makes is kept and half of it
       would be lost.
    """
    if not steps:
        yield say
        return
    lock, stop = threading.Lock(), threading.Event()

    def labelled(word: str, text: str) -> None:
        with lock:
            say(f"{word}: {text}")

    def take() -> None:
        for step in steps:
            if not stop.is_set():
                step(lambda text: labelled(label, text))

    with ThreadPoolExecutor(1) as thread:
        work = thread.submit(take)

        def checked(text: str) -> None:
            if work.done():
                work.result()
            labelled(own, text)

        try:
            yield checked
            work.result()
        except BaseException:
            stop.set()
            if not work.done():
                labelled(label, "ending after the present one")
            raise
