"""Images are built while programs compile: at once, in lines that can be told apart, and neither hides the other's failure."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.kube import binaries, host, image_store, images, stack
from tools.kube.beside import Say, Step, beside
from tools.kube.programs import NoProgram


def step_of(*lines: str) -> Step:
    def step(say: Say) -> None:
        for line in lines:
            say(line)

    return step


def failing(say: Say) -> None:
    raise OSError("no space left")


def test_both_run_at_once() -> None:
    meeting = threading.Barrier(2, timeout=10)
    with beside("images", [lambda say: meeting.wait()], "programs", print):
        meeting.wait()


def test_each_line_names_its_work_and_all_steps_are_taken() -> None:
    said: list[str] = []
    with beside("images", [step_of("one"), step_of("two", "three")], "programs", said.append) as own:
        own("etcd")
    assert sorted(said) == ["images: one", "images: three", "images: two", "programs: etcd"]
    assert [line for line in said if "images" in line] == ["images: one", "images: two", "images: three"]


def test_without_steps_nothing_is_labelled() -> None:
    said: list[str] = []
    with beside("images", [], "programs", said.append) as own:
        own("etcd")
    assert said == ["etcd"]


def test_a_step_that_failed_ends_the_block_at_its_next_line() -> None:
    said: list[str] = []

    def build_many() -> None:
        with beside("images", [failing], "programs", said.append) as own:
            for number in range(1_000_000):
                own(f"program {number}")

    with pytest.raises(OSError, match="no space left"):
        build_many()
    assert len(said) < 1_000_000


def test_a_step_that_fails_last_is_not_forgotten() -> None:
    block_is_over = threading.Event()

    def late(say: Say) -> None:
        block_is_over.wait(10)
        failing(say)

    with pytest.raises(OSError, match="no space left"), beside("images", [late], "programs", print):
        block_is_over.set()


def test_a_block_that_fails_lets_the_present_step_end_and_begins_no_other() -> None:
    begun, block_failed = threading.Event(), threading.Event()
    said: list[str] = []

    def long(say: Say) -> None:
        begun.set()
        assert block_failed.wait(10)
        say("kept")

    def saying(text: str) -> None:
        said.append(text)
        block_failed.set()

    def fail() -> None:
        with beside("images", [long, step_of("never")], "programs", saying):
            assert begun.wait(10)
            raise NoProgram("no helm")

    with pytest.raises(NoProgram, match="no helm"):
        fail()
    assert said == ["images: ending after the present one", "images: kept"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine on which every build is a line in the answered list."""
    done: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("check", "check_kernel"):
        monkeypatch.setattr(host, name, lambda: None)
    monkeypatch.setattr(host, "install_packages", lambda say: None)
    monkeypatch.setattr(stack, "Builder", lambda log: SimpleNamespace(log=log))

    def build(recipe: images.Recipe, builder: object, say: Say) -> Path:
        archive = tmp_path / f"{recipe.stem}.tar"
        if not archive.exists():
            done.append(recipe.name)
            archive.touch()
        return archive

    def fill(names: dict[str, str], archives: list[Path], before: object, log: Path) -> None:
        done.append(f"loaded {len(archives)}")

    monkeypatch.setattr(images, "build", build)
    monkeypatch.setattr(image_store, "fill", fill)
    return done


def test_images_without_programs_are_built_while_programs_are(
    machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs of this test are there only when all images that need none are built."""

    def find_all(wanted: tuple[str, ...], say: Say) -> dict[str, Path]:
        for _ in range(2000):
            if len(machine) == 6:
                break
            threading.Event().wait(0.005)
        for name in wanted:
            (tmp_path / name).write_text(name)
        machine.append("programs")
        return {name: tmp_path / name for name in wanted}

    monkeypatch.setattr(binaries, "find_all", find_all)
    prepared = stack.prepare(lambda text: None)
    ours = [f"kompakt-{name}" for name in images.PACKAGES]
    assert machine == ["kompakt-digits", "pause", *ours, "programs", "coredns", "kube-scheduler", "loaded 8"]
    assert set(prepared.names) == {"kompakt-digits", "pause", *ours, "coredns", "kube-scheduler"}
