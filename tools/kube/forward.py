"""Forward a loopback port of the host into a cluster's network. Run by path, with stdlib only.

A socket belongs to the network namespace it was made in. The starter makes the listening socket on the host and runs
this program inside the cluster's namespace: it accepts there and dials here, and the host needs no link, address or
route for the cluster.

usage: forward.py LISTENING_FD HOST PORT
"""

import asyncio
import socket
import sys


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        for end in (writer, far_writer):
            end.close()

    server = await asyncio.start_server(handle, sock=listener)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3])))
