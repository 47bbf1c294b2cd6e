"""Whether kube-scheduler beside this process is well, by its own word: so that one probe can tell of both."""

import asyncio
import ssl
from typing import Final

PORT: Final = 10259  # its secure port, unless told otherwise
_SECONDS: Final = 2.0
_REQUEST: Final = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def unverified() -> ssl.SSLContext:
    """It signs its certificate itself; who answers on loopback is of this pod."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class SchedulerProbe:
    """Asks for /livez, which kube-scheduler answers to anybody."""

    def __init__(self, port: int = PORT, tls: ssl.SSLContext | None = None) -> None:
        self._port, self._tls = port, tls

    async def __call__(self) -> str:
        """What is wrong with it; empty when all is well."""
        try:
            async with asyncio.timeout(_SECONDS):
                status = await self._status()
        except (OSError, TimeoutError) as error:
            return f"kube-scheduler does not answer on port {self._port}: {str(error) or 'too slow'}"
        return "" if status == "200" else f"kube-scheduler's /livez answers {status}"

    async def _status(self) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        try:
            writer.write(_REQUEST)
            line = (await reader.readline()).decode("latin-1").split()
            return line[1] if len(line) > 1 else "nothing"
        finally:
            writer.close()
