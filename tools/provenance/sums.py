"""SHA256SUMS of a folder: of each file in it, as `sha256sum --check` reads them there."""

import re
from pathlib import Path
from typing import Final

from tools.provenance.layout import Refused, file_digest

SUMS: Final = "SHA256SUMS"
_LINE: Final = re.compile(r"([0-9a-f]{64})  (\S.*)")


def sums(folder: Path) -> str:
    """What the file is to say."""
    return "".join(f"{hexadecimal(path)}  {path.relative_to(folder)}\n" for path in files(folder))


def files(folder: Path) -> list[Path]:
    """Everything below a folder but the sums themselves, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / SUMS)


def hexadecimal(path: Path) -> str:
    return file_digest(path).removeprefix("sha256:")


def faults(folder: Path) -> list[str]:
    """In what the folder is not what its sums say, a sentence for each file. Raises Refused where there are no sums.

    Links are faults, wherever they lead: sums do not follow one to a folder, and whoever reads files by name does.
    """
    named, there = _read(folder / SUMS), {str(path.relative_to(folder)): path for path in files(folder)}
    return [
        *(f"{path.relative_to(folder)} is neither a file nor a folder" for path in sorted(folder.rglob("*")) if _is_odd(path)),
        *(f"{name} is missing, and {SUMS} names it" for name in sorted(named.keys() - there.keys())),
        *(f"{name} is not named in {SUMS}" for name in sorted(there.keys() - named.keys())),
        *(
            f"{name} has the SHA-256 {found}, and {SUMS} says {named[name]}"
            for name, path in there.items()
            if name in named and (found := hexadecimal(path)) != named[name]
        ),
    ]


def _is_odd(path: Path) -> bool:
    return path.is_symlink() or not (path.is_file() or path.is_dir())


def _read(path: Path) -> dict[str, str]:
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(f"{path.parent} is no release: it has no {SUMS}") from None
    except UnicodeDecodeError:
        raise Refused(f"{path} is no text") from None
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _LINE.fullmatch(line)) is None:
            raise Refused(f"line {number} of {path} is no SHA-256 with a name")
        found[match[2]] = match[1]
    return found
