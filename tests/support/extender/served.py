"""An app behind a socket, served as the extender's main serves it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from kompakt_extender.main import listen, server


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """The running server and its port."""
    ours = server(app)
    with listen("127.0.0.1", 0) as listening:
        task = asyncio.create_task(ours.serve([listening]))
        async with asyncio.timeout(10):
            while not ours.started:
                await asyncio.sleep(0.001)
            yield ours, listening.getsockname()[1]
            ours.should_exit = True
            await task
