"""A container that asks for all GPUs by NVIDIA_VISIBLE_DEVICES, as any tenant's may, and writes down which it was shown.

    python -m kompakt_device_plugin.isolation_probe FILE

It lives beside the device plugin, which as a privileged container sees every device of its node and cannot tell.
"""

import json
import re
import signal
import sys
from pathlib import Path
from typing import Final

DEV: Final = Path("/dev")
_GPU = re.compile(r"nvidia[0-9]{1,4}")


def shown_gpus(dev: Path = DEV) -> list[str]:
    """The device files of GPUs that a container has."""
    return sorted(file.name for file in dev.iterdir() if _GPU.fullmatch(file.name))


def write(file: Path, dev: Path = DEV) -> None:
    """Beside it first: whoever reads it reads all of it."""
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(json.dumps(shown_gpus(dev)))
    beside.rename(file)


def main() -> None:
    """What a container is shown is settled when it begins; so this waits for its end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    write(Path(sys.argv[1]))
    signal.pause()


if __name__ == "__main__":
    main()
