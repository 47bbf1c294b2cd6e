"""`kompakt ui`: the live page of a cluster in a browser of this machine."""

import webbrowser
from typing import Annotated

import typer

from kompakt_cli.cluster_options import ClusterOptions, reaching
from kompakt_core.errors import InvalidInput

Port = Annotated[int, typer.Option(help="of 127.0.0.1; 0: a free one", min=0, max=65535)]
Open = Annotated[bool, typer.Option("--open", help="open the address in this machine's browser as well")]


@reaching
def ui(question: ClusterOptions, port: Port = 0, open_browser: Open = False) -> None:
    """Show the cluster live in a browser: what waits, why and until when, and who holds which GPU. Runs until Ctrl-C.

    Prints the address. It works on this machine only, and only for who knows it; your kubeconfig stays here.
    """
    from kompakt_cli.live_server import LiveServer

    question.cluster.get("nodes", limit=1)  # what is wrong is said here rather than on the page
    try:
        server = LiveServer(question.cluster.passed, port)
    except OSError as error:
        raise InvalidInput(f"--port: cannot listen on 127.0.0.1:{port}: {error.strerror}; choose another") from None
    typer.echo(f"{server.address}   (Ctrl-C ends it)")
    if open_browser:
        webbrowser.open(server.address_once())
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
