"""All delay policies by name."""

from collections.abc import Mapping

from kompakt_core.policy.dally import dally
from kompakt_core.policy.kompakt import kompakt
from kompakt_core.policy.model import Decide
from kompakt_core.policy.never_relax import never_relax
from kompakt_core.policy.no_wait import no_wait

POLICIES: Mapping[str, Decide] = {"dally": dally, "kompakt": kompakt, "never-relax": never_relax, "no-wait": no_wait}
