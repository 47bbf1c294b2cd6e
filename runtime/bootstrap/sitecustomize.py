"""Python imports this file at start-up when its folder is on PYTHONPATH. It starts kompakt's runtime once torch is imported.

It costs a program that never imports torch next to nothing: it imports no module of its own. It hides no other
sitecustomize: the next one on sys.path runs as if this one were not there. KOMPAKT_OFF=1 switches it off.
"""

import os
import sys


def _path_finder():
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") == "PathFinder":
            return finder
    return None


def _chain(here):
    """Runs the sitecustomize that would have run without us, under its own name."""
    finder = _path_finder()
    others = [path for path in sys.path if os.path.abspath(path) != here]
    spec = finder.find_spec("sitecustomize", others) if finder else None
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


# Programs that import torch, or run beside a training, without training themselves.
_BYSTANDERS = ("torchrun", "pip", "pip3", "uv", "tensorboard", "accelerate", "jupyter", "pytest")
_BYSTANDER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.elastic",
    "pip",
    "venv",
    "ensurepip",
)


def _bystander(words):
    """Judges the command line of this process: `python SCRIPT ...` or `python -m MODULE ...`."""
    for place, word in enumerate(words[1:], start=1):
        if word == "-m":
            return any(module in _BYSTANDER_MODULES for module in words[place + 1 : place + 2])
        if word == "-c":
            return False
        if not word.startswith("-"):
            return os.path.basename(word) in _BYSTANDERS
    return False


class _TorchWaiter:
    """Stands first on sys.meta_path until torch is loaded; then steps aside for good.

    Programs that only ask whether torch is there (`importlib.util.find_spec`) get a spec too, and throw it away.
    """

    def __init__(self, payload):
        self.payload = payload
        self.wrapped = None

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        for finder in [other for other in sys.meta_path if other is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        if spec.loader is not None and spec.loader is not self.wrapped:
            self.wrap(spec.loader)
        return spec

    def wrap(self, loader):
        self.wrapped = loader
        load = loader.exec_module

        def load_and_start(module):
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            load(module)
            _start(self.payload)

        loader.exec_module = load_and_start


def _start(payload):
    """Imports the runtime from beside this folder; the user's sys.path stays as it was."""
    sys.path.append(payload)
    try:
        import kompakt_runtime.start
    except Exception as error:
        return _cannot(f"the runtime could not be loaded: {error!r}")
    finally:
        sys.path.remove(payload)
    return kompakt_runtime.start.start()


def _cannot(why):
    print(f"kompakt: training without activation compression: {why}", file=sys.stderr)
    if os.environ.get("KOMPAKT_FAILURE_POLICY") == "Fail":
        raise SystemExit(78)


def _main():
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        off = os.environ.get("KOMPAKT_OFF", "0") not in ("", "0")
        waiting = any(type(finder).__name__ == "_TorchWaiter" for finder in sys.meta_path)  # another copy of this file
        if not (off or waiting or _bystander(getattr(sys, "orig_argv", ()))):
            if sys.version_info < (3, 10):  # noqa: UP036 - this runs in the user's Python, whatever that is
                _cannot("CPython 3.10 or later is needed")
            else:
                sys.meta_path.insert(0, _TorchWaiter(os.path.dirname(here)))
    finally:
        # Last: an error in the other file must look as it does without us.
        _chain(here)


_main()
