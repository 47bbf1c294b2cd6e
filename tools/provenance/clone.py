"""What a commit of the checkout holds, whatever lies in the working tree now."""

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.kube.images import ROOT
from tools.provenance.layout import Refused


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone of the project."""

    root: Path = ROOT

    def head(self) -> str:
        """The commit that is checked out, in full. Raises Refused where there is none."""
        return self._git("rev-parse", "--verify", "HEAD^{commit}").decode().strip()

    def archive(self, commit: str) -> bytes:
        """All files of a commit, as tar. Raises Refused where the clone does not have it."""
        return self._git("archive", commit)

    def digests(self, commit: str, paths: Sequence[str]) -> dict[str, str]:
        """SHA-256 in hexadecimal of files of a commit. Raises Refused where the clone lacks the commit or it lacks a file."""
        found = {}
        with tarfile.open(fileobj=io.BytesIO(self._git("archive", commit, "--", *paths))) as tar:
            for member in tar:
                if (file := tar.extractfile(member)) is not None:
                    found[member.name] = hashlib.sha256(file.read()).hexdigest()
        return {path: found[path] for path in paths}

    def _git(self, *words: str) -> bytes:
        done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, check=False)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            raise Refused(f"git {' '.join(words)} in {self.root}: {said} (a shallow clone needs `git fetch --unshallow`)")
        return done.stdout
