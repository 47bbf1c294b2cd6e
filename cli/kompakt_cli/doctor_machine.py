"""Checks of this machine: whether a training here would be compressed, and how fast. Pure: a reading in, findings out."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kompakt_cli.doctor_probe import OFF, SHM, MachineReading
from kompakt_cli.finding import Finding, not_checked, ok, problem, warning

OLDEST_PYTHON: Final = (3, 10)  # of the runtime
OLDEST_TORCH: Final = (2, 4)
SHM_AT_LEAST: Final = 1 << 30  # loaders hand batches over in it; a container engine's default is 64 MB
INSTALL_TORCH: Final = "pip install torch in the environment that trains, or name another Python with --python"
INSTALL_RUNTIME: Final = "from a checkout: pip install ./runtime, beside this command (docs/install.md)"
GPU_CURES: Final[Mapping[str, str]] = {
    "NoTriton": "pip install triton in the environment that trains; a torch for CUDA brings it",
    "NoCompiler": "apt install gcc, or set CC: Triton compiles its launcher",
}


def findings(reading: MachineReading) -> list[Finding]:
    """All that can be said."""
    looks = (_python, _torch, _hook, _capabilities, _driver, _gpu, _triton, _shm)
    return [finding for look in looks for finding in look(reading)]


def _python(reading: MachineReading) -> Iterator[Finding]:
    found = reading.python.get("python", "")
    if not found:
        said = f"{reading.program} {reading.failed}"
        yield problem("Python", said, "name the Python that trains with --python; it has to run by itself")
    elif _numbers(found) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield problem("Python", f"{found} ({reading.program}) is too old", f"train with Python {oldest} or later")
    else:
        yield ok("Python", f"{found} ({reading.program})")


def _torch(reading: MachineReading) -> Iterator[Finding]:
    found, oldest = reading.python.get("torch", ""), ".".join(map(str, OLDEST_TORCH))
    if broken := reading.python.get("broken"):
        yield problem("PyTorch", f"cannot be imported: {broken}", "install it anew: pip install --force-reinstall torch")
    elif not found:
        yield warning("PyTorch", "is not installed there, so nothing can train", INSTALL_TORCH)
    elif _numbers(found) < OLDEST_TORCH:
        yield problem("PyTorch", f"{found} is too old to compress", f"pip install 'torch>={oldest}'")
    else:
        yield ok("PyTorch", f"{found}, built for {reading.python.get('built_for')}; {oldest} and later are supported")


def _hook(reading: MachineReading) -> Iterator[Finding]:
    """By what the runtime says when torch is imported, as `kompakt run` and workers of a job start it."""
    check = "kompakt run"
    said = "; ".join(line.removeprefix("kompakt: ") for line in reading.said)
    if not reading.hook:
        yield warning(check, "the package kompakt-runtime is not installed beside this command", INSTALL_RUNTIME)
    elif not reading.python.get("torch"):
        yield not_checked(check, "the start-up hook starts with torch", INSTALL_TORCH)
    elif reading.off not in ("", "0"):
        yield warning(check, f"{OFF}={reading.off} switches compression off", f"unset {OFF}")
    elif reading.python.get("session"):
        yield ok(check, f"would compress: {said}")
    else:
        yield problem(check, f"would not compress: {said or 'the start-up hook did not run'}", _hook_cure(reading))


def _hook_cure(reading: MachineReading) -> str:
    if reading.said:
        return f"pip install 'torch>={'.'.join(map(str, OLDEST_TORCH))}', or another one of these (docs/compression.md)"
    return f"start Python without -S, -I and -E, which keep it from PYTHONPATH; try {reading.program} -c 'import sitecustomize'"


def _capabilities(reading: MachineReading) -> Iterator[Finding]:
    """What this torch lacks of what it does not promise."""
    rows = reading.python.get("capabilities")
    if not rows:
        return
    lacking = [f"{name}: {instead}" for name, present, instead in rows if not present]
    if lacking:
        yield warning("capabilities", f"this torch lacks {'; '.join(lacking)}", "pip install --upgrade torch")
    else:
        yield ok("capabilities", f"all {len(rows)} that the runtime asks torch for")


def _driver(reading: MachineReading) -> Iterator[Finding]:
    if reading.driver:
        version = reading.driver[0].partition(",")[0]
        names = sorted({line.partition(",")[2].strip() for line in reading.driver})
        yield ok("NVIDIA driver", f"{version}, {len(reading.driver)} GPUs: {', '.join(names)}")
    else:
        cure = (
            "install NVIDIA's driver where there is a GPU (in a container: --gpus all); on CPUs compression makes training slower"
        )
        yield warning("NVIDIA driver", reading.no_driver, cure)


def _gpu(reading: MachineReading) -> Iterator[Finding]:
    """Whether tensors on a GPU are packed: the runtime tries its kernels."""
    names, reason = reading.python.get("gpus") or [], reading.python.get("unpacked")
    if reading.driver and reading.python.get("torch") and not names:
        said = f"torch {reading.python['torch']}, built for {reading.python.get('built_for')}, sees no GPU"
        yield problem(
            "GPU", said, "install a torch for CUDA that this driver takes (pytorch.org), and check CUDA_VISIBLE_DEVICES"
        )
    elif names and reason:
        yield problem(
            "GPU", f"nothing is packed on it: {reason}", GPU_CURES.get(reason, "docs/compression.md says what it means")
        )
    elif names and reason is not None:
        yield ok("GPU", f"{len(names)} for torch; the codec's kernels run and agree with plain torch")


def _triton(reading: MachineReading) -> Iterator[Finding]:
    """Only GPUs need it, and a compiler for it."""
    if not reading.driver:
        return
    found: Any = reading.python.get("triton")
    if not found:
        yield problem("Triton", "is not installed there: nothing is packed on GPUs", GPU_CURES["NoTriton"])
    elif not reading.compiler:
        yield problem("Triton", f"{found}, and no C compiler for it", GPU_CURES["NoCompiler"])
    else:
        yield ok("Triton", f"{found}, C compiler {reading.compiler}")


def _shm(reading: MachineReading) -> Iterator[Finding]:
    size = reading.shm_bytes
    cure = "docker run --shm-size=8g, or --ipc=host; in a TrainingJob spec.sharedMemory. Or num_workers=0 in the DataLoader"
    if size is None:
        yield warning(SHM, "is not there: workers of a DataLoader cannot hand over batches", cure)
    elif size < SHM_AT_LEAST:
        yield warning(SHM, f"{size / 1e6:.0f} MB: workers of a DataLoader may end with a bus error", cure)
    else:
        yield ok(SHM, f"{size / 1e9:.1f} GB")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split(".")[:2] if part.isdigit())
