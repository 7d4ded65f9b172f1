"""``cutaway serve``: a model for the clients of OpenAI's and Anthropic's APIs."""

import click

from cutaway.api.address import is_local, open_socket, url_of
from cutaway.api.host_names import allowed_hosts
from cutaway.cli.configuration import ConfiguredCommand
from cutaway.cli.options import ModelOptions, model_options, number_option
from cutaway.cli.output import tell
from cutaway.cli.session import open_session

# Requests that run at the same time; more wait.
MAX_RUNNING = 64


@click.command(cls=ConfiguredCommand, context_settings={"auto_envvar_prefix": "CUTAWAY_SERVE"})
@model_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address or name of this machine to listen on.")
@number_option("port", int, 8000, "Port to listen on")
@click.option(
    "--allowed-host",
    multiple=True,
    help="A name under which clients reach the server, besides localhost; may be given several times.",
)
def serve(options: ModelOptions, host: str, port: int, allowed_host: tuple[str, ...]) -> None:
    """Answer the clients of OpenAI's and Anthropic's APIs over HTTP.

    Routes: /v1/chat/completions, /v1/completions, /v1/messages, /v1/models, /tokenize, /detokenize, /render, /health,
    /ready, /metrics, /version, /docs, /openapi.json. Ctrl-C lets requests finish; pressed again, it stops them.

    Every option may also stand in the environment, as in CUTAWAY_SERVE_PORT, and in a file that --config names; the
    command line comes first, then the environment, then the file.
    """
    engine_options = options.engine(MAX_RUNNING)
    with open_socket(host, port) as bound:
        hosts = allowed_hosts(host, bound.getsockname()[0], is_local(bound), allowed_host)
        with open_session(options.model, engine_options) as session:
            from cutaway.api.app import build_app  # a quarter of a second, which only this needs
            from cutaway.api.server import Server

            if not is_local(bound):
                tell("note: whoever can reach this address can use the model; there are no keys yet")
            engine = session.engine
            server = Server(build_app(engine, hosts=hosts), tell, engine.close)
            if not server.run_on(bound, f"serving {engine.model.name} at {url_of(bound)}"):
                raise KeyboardInterrupt
