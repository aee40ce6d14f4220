"""`python -m simserver`: one ready line, and a clean stop."""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import ExitStack

from simserver.app import Settings, SimulatedServer
from simserver.chat import ChatRules
from simserver.faults import Faults
from simserver.options import admission_of, context_length, engine_of, parser
from simserver.presets import PRESETS
from simserver.truth import TruthLog


async def _serve(options: argparse.Namespace, server: SimulatedServer, about: str) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    port = await server.start(options.host, options.port)
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"simserver: listening on http://{host}:{port} ({about})", flush=True)
    waits = [asyncio.create_task(stopping.wait()), asyncio.create_task(server.failed())]
    ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await server.stop()
    if waits[1] in ended:
        waits[1].result()


def main(arguments: list[str] | None = None) -> None:
    """Run the server until SIGTERM or SIGINT; exit 3 on wrong options or an address or file not to be had."""
    made = parser()
    options = made.parse_args(arguments)
    preset = PRESETS[options.preset]
    with ExitStack() as open_files:
        try:
            engine = engine_of(options, preset)
            limits = engine.limits
            settings = Settings(
                rules=ChatRules(
                    options.model,
                    context_length(options, limits),
                    options.output_tokens,
                    prefix_caching=options.enable_prefix_caching,
                ),
                admission=admission_of(options),
                api_key=options.api_key,
                timeout_keep_alive_s=options.timeout_keep_alive,
                tenant_header=options.tenant_header,
                faults=Faults.parse(options.fault),
            )
            truth = open_files.enter_context(TruthLog(options.log)) if options.log else None
        except FileExistsError:
            made.error(f"--log {options.log} exists already: name a new file or remove it")
        except (ValueError, OSError) as error:
            made.error(str(error))
        server = SimulatedServer(settings, engine, truth)
        about = (
            f"model {options.model}, {preset.name}, {limits.max_num_batched_tokens} tokens per step, "
            f"{limits.max_num_seqs} running at most, {limits.whole_kv_tokens} KV tokens, {engine.policy.name}"
        )
        try:
            asyncio.run(_serve(options, server, about))
        except OSError as error:
            made.error(f"cannot listen on {options.host}:{options.port}: {error.strerror or error}")


if __name__ == "__main__":
    main()
