"""What rendering relies on in a pod template; the rest of the pod is the API server's to judge."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from kompakt_core.schema.meta import Declared, about
from kompakt_core.schema.reader import read


class TemplateContainer(Declared, frozen=True):
    """A container has a name."""

    name: str
    OPEN: ClassVar[bool] = True


class TemplatePod(Declared, frozen=True):
    """There is a container."""

    containers: Annotated[tuple[TemplateContainer, ...], about("Containers.", shortest=1, longest=1000)]
    OPEN: ClassVar[bool] = True


class PodTemplate(Declared, frozen=True):
    """There is a pod."""

    spec: TemplatePod
    OPEN: ClassVar[bool] = True


def read_template(value: Any, path: str) -> Mapping[str, Any]:
    """The template as it stands. Raises InvalidInput where there is nothing to render."""
    read(PodTemplate, value, path)
    found: Mapping[str, Any] = value
    return found
