"""All delay policies by name."""

from collections.abc import Mapping

from kompakt_core.delay.dally import dally
from kompakt_core.delay.kompakt import kompakt
from kompakt_core.delay.model import Decide
from kompakt_core.delay.never_relax import never_relax
from kompakt_core.delay.no_wait import no_wait

POLICIES: Mapping[str, Decide] = {"dally": dally, "kompakt": kompakt, "never-relax": never_relax, "no-wait": no_wait}
