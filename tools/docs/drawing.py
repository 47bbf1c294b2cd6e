"""The drawing of one package: its subpackages and modules in layers, each importing only from layers below its own."""

import textwrap
from collections.abc import Sequence

from tools.docs.layers import Imports, Node, layered
from tools.docs.modules import Module

WIDTH = 112
ARROWS = 14  # up to so many nodes each has a line of its own with what it imports; more would be a hairball


def drawings(modules: Sequence[Module]) -> list[str]:
    """One drawing for the room, then one for each subpackage of more than one module."""
    packages = sorted({module.name.rpartition(".")[0] if not _is_package(module) else module.name for module in modules})
    return [text for package in packages if (text := drawing(package, modules))]


def drawing(package: str, modules: Sequence[Module]) -> str:
    """The children of one package; a subpackage is one node, `name/`. Empty for fewer than two."""
    imports = children(package, modules)
    if len(imports) < 2:
        return ""
    layers = layered(imports)
    body = _with_arrows(layers) if len(imports) <= ARROWS else _packed(layers)
    return "\n".join([f"{package or 'outside the package'}", *body, *_ground(package, modules)])


def children(package: str, modules: Sequence[Module]) -> Imports:
    """Which child of the package imports which other ones."""
    owner = {module.name: _child(package, module) for module in modules if _child(package, module)}
    found: dict[str, set[str]] = {child: set() for child in owner.values()}
    for module in modules:
        if child := owner.get(module.name):
            found[child] |= {owner[name] for name in module.imports if name in owner} - {child}
    return found


def _child(package: str, module: Module) -> str:
    """Below which name of the drawing a module stands; none for the package itself and for modules elsewhere."""
    prefix = f"{package}." if package else ""
    if not module.name.startswith(prefix) or (not package and "." in module.name) or module.name == package:
        return ""
    first, _, rest = module.name.removeprefix(prefix).partition(".")
    return f"{first}/" if rest or _is_package(module) else first


def _is_package(module: Module) -> bool:
    return module.path.endswith("/__init__.py")


def _with_arrows(layers: Sequence[Sequence[Node]]) -> list[str]:
    widest = max(len(node.title) for layer in layers for node in layer)
    lines: list[str] = []
    for height, layer in zip(range(len(layers) - 1, -1, -1), layers, strict=True):
        for number, node in enumerate(layer):
            mark = f"{height:>3} │ " if number == 0 else "    │ "
            arrow = f" ──► {', '.join(node.below)}" if node.below else ""
            lines += _wrapped(f"{node.title:<{widest}}{arrow}".rstrip(), mark, widest + 5)
    return lines


def _packed(layers: Sequence[Sequence[Node]]) -> list[str]:
    lines: list[str] = []
    for height, layer in zip(range(len(layers) - 1, -1, -1), layers, strict=True):
        lines += _wrapped("   ".join(node.title.replace(" ", "\0") for node in layer), f"{height:>3} │ ", 0)
    return lines


def _wrapped(text: str, mark: str, indent: int) -> list[str]:
    found = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False, subsequent_indent=" " * indent)
    return [(mark if number == 0 else "    │ ") + line.replace("\0", " ") for number, line in enumerate(found)]


def _ground(package: str, modules: Sequence[Module]) -> list[str]:
    """What stands below all layers: other parts of the same room, by their names in it, and other rooms' packages."""
    room = package.partition(".")[0]
    own = [module for module in modules if package and _within(module.name, package)]
    known = {module.name for module in modules}
    imported = {name for module in own for name in module.imports}
    siblings = {name.split(".")[1] for name in imported & known if "." in name and not _within(name, package)}
    rooms = {name.partition(".")[0] for name in imported if f"{name}.".startswith(("kompakt.", "kompakt_"))} - {room}
    lines = [("from this package: ", siblings), ("from other packages: ", rooms)]
    return [line for title, names in lines if names for line in _wrapped(title + ", ".join(sorted(names)), "    └ ", 4)]


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
