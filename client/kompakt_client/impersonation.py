"""Asking as somebody else: the fields `as...` of a kubeconfig's user, as the headers of user impersonation.

Fields: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/#AuthInfo
Headers: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

import string
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from kompakt_client.object_fields import ObjectFields
from kompakt_core.schema.words import shown

Headers = tuple[tuple[str, str], ...]
LARGEST: Final = 1_000  # groups, keys, or values of one key
_TOKEN: Final = "!#$&'*+-.^_`|~" + string.digits + string.ascii_letters  # of RFC 9110, without %, which escapes
_OTHERS: Final = ("as-uid", "as-groups", "as-user-extra")


def impersonation(user: ObjectFields) -> Headers:
    """The headers of a request, one for each group and value. Raises InvalidInput: no text, or more than a name without one."""
    name = user.text("as", "")
    more = [(header, value) for header, value in _more(user) if value]
    if not name:
        if more:
            user.refuse("as", f"is required beside {next(field for field in _OTHERS if user.has(field))}")
        return ()
    return tuple((header, _encoded(user, header, value)) for header, value in [("Impersonate-User", name), *more])


def _more(user: ObjectFields) -> Iterator[tuple[str, str]]:
    yield "Impersonate-Uid", user.text("as-uid", "")
    for group in user.texts("as-groups", high=LARGEST):
        yield "Impersonate-Group", group
    extra = user.inner("as-user-extra")
    for key in extra.names(high=LARGEST):
        for value in extra.texts(key, high=LARGEST):
            yield f"Impersonate-Extra-{quote(key, safe=_TOKEN)}", value


def _encoded(user: ObjectFields, header: str, value: str) -> str:
    """As UTF-8 on the wire, as kubectl sends it; http.client writes Latin-1."""
    if any(character < " " or character == "\x7f" for character in value):
        user.refuse("as", f"expected {header} without control characters, got {shown(value)}")
    return value.encode().decode("latin-1")
