"""`python -m tools.crd`: writes crds/, the chart's copies of them, docs/reference and the SDK's types anew.

`--keep-template` takes the pod template's schema from the file that is there."""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from kompakt_core.job.model import TrainingJobSpec
from kompakt_core.job.status_fields import TrainingJobStatus
from kompakt_core.schema.meta import Declared
from tools.crd import gang, gputopology, limits, podtemplate, reference, trainingjob, typed_dicts

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "crds"
COPIES = ROOT / "charts" / "kompakt" / "files" / "crds"  # Helm follows no link out of a chart
PAGES = ROOT / "docs" / "reference"
MODELS = ROOT / "sdk" / "kompakt" / "models"
HEADER = "# Made by `python -m tools.crd`; do not edit.\n"


class Plain(yaml.SafeDumper):
    """Repeats equal parts instead of pointing at them: kubectl and people read the file alike."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump(crd: dict[str, Any]) -> str:
    """The file's text."""
    return HEADER + yaml.dump(crd, Dumper=Plain, sort_keys=False, width=100000)


def committed_template() -> dict[str, Any]:
    """The pod template's schema in the committed file."""
    crd = yaml.load((FOLDER / "trainingjobs.yaml").read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    template: dict[str, Any] = spec["properties"]["roles"]["items"]["properties"]["template"]
    template.pop("description", None)  # ours
    return template


def files(template: dict[str, Any]) -> dict[str, str]:
    """Name and text of every generated file."""
    made = {
        "trainingjobs": trainingjob.trainingjob(template),
        "gputopologies": gputopology.gputopology(),
        "joblimits": limits.limits(),
        "gangs": gang.gang(),
    }
    return {f"{name}.yaml": dump(one) for name, one in made.items()}


def pages() -> dict[str, str]:
    """Name and text of every reference page."""
    made = trainingjob.PAGE, gputopology.PAGE, limits.PAGE, gang.PAGE
    return {f"{page.names['singular']}.md": reference.page(page) for page in made}


def models() -> dict[str, str]:
    """Name and text of every module of types."""
    made: dict[str, tuple[str, type[Declared]]] = {
        "spec": ("in a manifest", TrainingJobSpec),
        "status": ("in the cluster", TrainingJobStatus),
    }
    return {
        f"{name}.py": typed_dicts.module(f"The types of a TrainingJob's {name}: plain dicts, as {where}.", kind)
        for name, (where, kind) in made.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.crd", description=__doc__)
    parser.add_argument("--keep-template", action="store_true", help="needs no Go: keep the pod template's schema as committed")
    arguments = parser.parse_args()
    try:
        template = committed_template() if arguments.keep_template else podtemplate.pod_template(podtemplate.find_document())
    except podtemplate.SourceMissing as problem:
        sys.exit(f"{problem}\nInstall Go, or keep the committed template with --keep-template.")
    for folder, made in ((FOLDER, files(template)), (COPIES, files(template)), (PAGES, pages()), (MODELS, models())):
        folder.mkdir(exist_ok=True)
        for name, text in made.items():
            (folder / name).write_text(text)


if __name__ == "__main__":
    main()
