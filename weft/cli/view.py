"""``weft view``: an interactive page about how a model is compiled."""

from __future__ import annotations

import http.server
from pathlib import Path

import click

from weft.cli.common import compile_options, records_option, session
from weft.cli.models import ModelFile
from weft.cli.output import check_writable, write_text
from weft.support.errors import OptionError


@click.command("view")
@click.argument("model", type=ModelFile())
@compile_options
@records_option
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None,
              help="write one self-contained file instead of serving the page")
@click.option("--against", type=ModelFile(), default=None,
              help="another model, or the page of an earlier run, to compare with")
@click.option("--against-target", default=None, metavar="TARGET",
              help="the same model for another target of this machine, compared")
@click.option("--port", type=click.IntRange(0, 65535), default=0,
              help="port on the loopback interface (0: any that is free)")
def view_command(model: str, target: str | None,
                 shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                 output: Path | None, against: str | None, against_target: str | None, port: int
                 ) -> None:
    """Show how MODEL is compiled on an interactive page.

    Graph and text of every phase, and of each kernel its time, decision, schedule, loops and
    machine code; the memory plan, and the distributions of weights. `/` searches, arrow keys
    change the view.

    \b
    weft view model.onnx                    served on the loopback interface until Ctrl-C
    weft view model.onnx -o model.html      one file, which needs no server
    weft view model.onnx --against old.onnx    compared with another model
    weft view model.onnx --against before.html    compared with an earlier run
    """
    if output is not None:
        check_writable(output)
    with session():
        page = _page(model, target, shapes, opt_level, against, against_target)
    if output is not None:
        write_text(output, page)
        click.echo(f"wrote {output}")
        return
    _serve(page, port)


def _page(model: str, target: str | None, shapes: tuple[tuple[str, tuple[object, ...]], ...],
          opt_level: int, against: str | None, against_target: str | None) -> str:
    import weft
    from weft.cli.model_summary import check_timed
    from weft.compiler.report.view.facts import ViewFacts, view_facts
    from weft.compiler.report.view.page import facts_of_page, view_page

    def facts(name: str, kind: str | None) -> ViewFacts:
        module = weft.compile(name, target=kind, inputs=dict(shapes) or None, opt_level=opt_level)
        check_timed(module)
        return view_facts(module, Path(name).name + (f" for {kind}" if kind else ""))

    def other() -> ViewFacts | None:
        if against is not None and against.endswith(".html"):
            return facts_of_page(Path(against))
        is_compared = against is not None or against_target is not None
        return facts(against or model, against_target or target) if is_compared else None

    return view_page(facts(model, target), other())


def _serve(page: str, port: int) -> None:
    """Serve the page to this machine until the user ends it."""
    content = page.encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/" else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            if self.path == "/":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not worth a line."""

    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise OptionError(f"port {port} cannot be opened on 127.0.0.1", got=str(error),
                          help="--port 0 takes one that is free") from None
    with server:
        click.echo(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("")
