"""What `doctor` sees of the target: where it is, the preflight of a run, its /metrics, its GPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from client.exchange import exchange
from client.preflight import Preflight
from client.reader import ConnectionPool
from client.target import Target
from client.whereabouts import is_loopback, public_address, resolve
from client.wire import ConnectError
from experiments.doctor_machine import gpus_here
from experiments.suite_servers import BUSY_GAUGES, idle_by
from loadgen.preflight import PreflightRefused, ask, require_confirmation, target_of
from loadgen.settings import RunSettings

_PAGE_LIMIT_S = 10.0
_CONNECT_LIMIT_S = 5.0
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+\S+", re.MULTILINE)
_GPU_NAME = re.compile(r"^(DCGM_FI_|nv_gpu_|nvidia_smi_|nvidia_gpu_)")
_OF_ITS_PROCESS = ("python", "process")


@dataclass(frozen=True)
class MetricsSeen:
    """What a /metrics page holds: how many names by prefix, the names that tell the queue, those of GPUs;
    `idle` when these say that nothing runs or waits, None when none of them is there."""

    names_by_prefix: Mapping[str, int]
    queue_names: tuple[str, ...]
    gpu_names: tuple[str, ...]
    idle: bool | None


@dataclass(frozen=True)
class Asked:
    """The target as it was seen, step by step; what comes after a step that failed is None.

    `wrong` is what keeps a run from beginning before anything is sent; `addresses` those of its name;
    `connect_s` with TLS where there is some, of which `tls_s`; `found` the preflight; `metrics` None without
    a page, and then `no_metrics` says why; `gpus` by nvidia-smi, asked only when the target is this machine.
    """

    place: str
    tls: bool = False
    here: bool = False
    public: bool = False
    has_key: bool = False
    wrong: str | None = None
    addresses: tuple[str, ...] = ()
    connect_s: float | None = None
    tls_s: float | None = None
    found: Preflight | None = None
    metrics: MetricsSeen | None = None
    no_metrics: str | None = None
    gpus: tuple[str, ...] | None = None


def ask_target(settings: RunSettings, extra_body: Mapping[str, object]) -> Asked:
    """Look at the target as a run would before its load: a few small requests. Blocks for the run's time
    limits at the longest; what is wrong is told in what is returned."""
    try:
        target = target_of(settings)
    except PreflightRefused as error:
        return Asked(place="", wrong=str(error))
    asked = Asked(
        place=target.authority,
        tls=target.tls,
        here=is_loopback(target.host),
        has_key=target.api_key is not None,
    )
    try:
        asked = replace(asked, addresses=tuple(dict.fromkeys(resolve(target.host))))
        asked = replace(asked, public=public_address(target.host) is not None)
        require_confirmation(target.host, settings.confirm_target)
    except (OSError, UnicodeError):
        pass  # the preflight has the words for a name without an address
    except PreflightRefused as error:
        return replace(asked, wrong=str(error))
    pool = ConnectionPool(target, connect_limit_s=_CONNECT_LIMIT_S)
    try:
        asked = _connected(asked, pool)
        try:
            asked = replace(asked, found=ask(target, settings, stream=settings.stream, extra_body=extra_body))
        except PreflightRefused as error:
            return replace(asked, wrong=str(error))
        if asked.connect_s is not None:
            asked = _with_metrics(asked, pool, target)
    finally:
        pool.close()
    return replace(asked, gpus=gpus_here() if asked.here else None)


def metrics_seen(page: str) -> MetricsSeen:
    """What the text of a /metrics page holds."""
    names = dict.fromkeys(
        re.sub(r"_(bucket|sum|count|total|created)$", "", name) for name in _SAMPLE.findall(page)
    )
    gpu = tuple(name for name in names if _GPU_NAME.match(name))
    prefixes = Counter(re.split(r"[:_]", name)[0] for name in names if name not in gpu)
    return MetricsSeen(
        names_by_prefix={name: n for name, n in prefixes.most_common() if name not in _OF_ITS_PROCESS},
        queue_names=tuple(name for name in BUSY_GAUGES if name in names),
        gpu_names=gpu,
        idle=idle_by(page),
    )


def _connected(asked: Asked, pool: ConnectionPool) -> Asked:
    try:
        connection = pool.open()
    except ConnectError:
        return asked  # the preflight says it better
    asked = replace(asked, connect_s=connection.connect_s, tls_s=connection.wire.handshake_s)
    connection.close()
    return asked


def _with_metrics(asked: Asked, pool: ConnectionPool, target: Target) -> Asked:
    answer = exchange(pool, target.page_request("/metrics"), _PAGE_LIMIT_S)
    if answer.status != 200:
        return replace(asked, no_metrics=answer.why_not or f"HTTP {answer.status}")
    seen = metrics_seen(answer.body.decode("utf-8", "replace"))
    if not seen.names_by_prefix and not seen.gpu_names:
        return replace(asked, no_metrics="its page holds no figures of a server")
    return replace(asked, metrics=seen)
