"""What a Python can do for training, as one line of JSON; run by `kompakt doctor machine` in the Python that trains."""

import json
import sys
from importlib import import_module  # the runtime comes by the start-up hook: this package must not import it


def optional(name):
    """The version of a package; "" where it is not there."""
    try:
        return str(__import__(name).__version__)
    except ImportError:
        return ""


def gpus(torch):
    """Names, and one word for why nothing is packed on them; "" where it is, None where nobody can say."""
    if not torch.cuda.is_available():
        return {"gpus": [], "unpacked": None}
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    try:
        encoder = import_module("kompakt_runtime.codec.select").encoder
    except ImportError:
        return {"gpus": names, "unpacked": None}
    return {"gpus": names, "unpacked": encoder(torch.device("cuda", 0), torch.float32).reason}


def capabilities():
    """Of the runtime: name, whether this torch has it, what is done instead; None without runtime."""
    try:
        rows = import_module("kompakt_runtime.compat").capabilities()
    except (ImportError, AttributeError):
        return None
    return [[one.name, one.present, one.instead] for one in rows]


def main():
    found = {"python": sys.version.split()[0], "program": sys.executable, "triton": optional("triton")}
    try:
        import torch  # with the start-up hook this starts the runtime
    except Exception as error:  # a broken installation raises anything
        missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        found.update({"torch": "", "broken": "" if missing else repr(error)[:300]})
    else:
        started = sys.modules.get("kompakt_runtime.session")
        found.update({"torch": str(torch.__version__), "built_for": torch.version.cuda or torch.version.hip or "CPU"})
        found.update({"session": started is not None, "capabilities": capabilities(), **gpus(torch)})
    print(json.dumps(found))


main()
