"""`python -m simserver`: one ready line, and a clean stop."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from simserver.app import Origin, Settings, SimulatedServer
from simserver.engine_options import admission_of, engine_of, gateway_of
from simserver.exact_timers import event_loop
from simserver.faults import Faults
from simserver.options import parser, rules_of, tls_of
from simserver.presets import PRESETS
from simserver.truth import TruthLog

YOUNG_OBJECTS = 5_000


async def _serve(
    options: argparse.Namespace, faults: Faults, make_server: Callable[[Origin], SimulatedServer], about: str
) -> None:
    """Serve until a signal. After a crash that was asked for a new server listens at the same port."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    stopped = asyncio.create_task(stopping.wait())
    origin = Origin()
    server = make_server(origin)
    port = await server.start(options.host, options.port)
    scheme = "https" if options.tls_cert else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"simserver: listening on {scheme}://{host}:{port} ({about})", flush=True)
    for crash in faults.crashes:
        if await _over(server, stopped, origin.started_s + crash["at"]):
            break
        await server.crash()
        print(f"simserver: crashed as asked, back in {crash['for']:g} s", file=sys.stderr, flush=True)
        await asyncio.wait([stopped], timeout=crash["for"])
        if stopped.done():
            return
        server = make_server(origin)
        await server.start(options.host, port)
    await _over(server, stopped, None)
    await server.stop()


async def _over(server: SimulatedServer, stopped: asyncio.Task[bool], until_s: float | None) -> bool:
    """Wait for a signal, until a moment at most: whether it came. Raises what killed the server."""
    died = asyncio.create_task(server.failed())
    limit_s = None if until_s is None else max(0.0, until_s - time.monotonic())
    ended, _ = await asyncio.wait([stopped, died], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    if died in ended:
        died.result()
    died.cancel()
    return stopped in ended


def _shorten_collections() -> None:
    """Let Python's collector look at what is made from now on only, and less often: a walk over all that the
    libraries hold takes 20 ms and more, in which no step ends."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def main(arguments: list[str] | None = None) -> None:
    """Run the server until SIGTERM or SIGINT; exit 3 on wrong options or an address or file not to
    be had."""
    made = parser()
    options = made.parse_args(arguments)
    preset = PRESETS[options.preset]
    with ExitStack() as open_files:
        try:
            engine = engine_of(options, preset)
            limits = engine.limits
            settings = Settings(
                rules=rules_of(options, limits),
                admission=admission_of(options),
                gateway=gateway_of(options),
                api_key=options.api_key or None,
                timeout_keep_alive_s=options.timeout_keep_alive,
                tenant_header=options.tenant_header,
                faults=Faults.parse(options.fault),
                tls=tls_of(options),
            )
            truth = open_files.enter_context(TruthLog(options.log)) if options.log else None
        except FileExistsError:
            made.error(f"--log {options.log} exists already: name a new file or remove it")
        except (ValueError, OSError) as error:
            made.error(str(error))
        about = (
            f"model {options.model}, {preset.name}, {limits.max_num_batched_tokens} tokens per step, "
            f"{limits.max_num_seqs} running at most, {limits.whole_kv_tokens} KV tokens, {engine.policy.name}"
        )

        def make_server(origin: Origin) -> SimulatedServer:
            """A server with an engine of its own, empty as after a start."""
            return SimulatedServer(settings, replace(engine), truth, origin)

        _shorten_collections()
        try:
            with asyncio.Runner(loop_factory=event_loop) as runner:
                runner.run(_serve(options, settings.faults, make_server, about))
        except OSError as error:
            made.error(f"cannot listen on {options.host}:{options.port}: {error.strerror or error}")


if __name__ == "__main__":
    main()
