"""What `doctor` sees of this machine: facts only, read from the system, None where it does not say."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gevent.socket

from client.wire import Wire, open_wire
from loadgen.local_limits import LocalLimits, limits_here

_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_GROUPS = Path("/sys/fs/cgroup")
_STA_UNSYNC = 0x0040
_TIMEX_BYTES = 512
_STATUS_AT = 40
_READINGS = 20_000
_STAMP_LIMIT_S = 2.0
_GPU_LIMIT_S = 10.0


@dataclass(frozen=True)
class Machine:
    """This machine as a load generator has it.

    `cores` are those that this process may use, a container's quota included. `clock_read_s` is what one
    reading of the monotonic clock costs. `synchronised`: does the kernel say that the wall clock is held to a
    reference (NTP, PTP)? `stamps`: "kernel" when the client's own sockets get the moment of arrival from the
    kernel, else "user". `taken` lists ports of this run that another process holds.
    """

    python: str
    cores: float
    limits: LocalLimits
    clock_resolution_s: float
    clock_read_s: float
    clock_source: str | None
    synchronised: bool | None
    stamps: str
    load_1min: float | None
    memory_free_bytes: int | None
    runs_dir: str
    disk_free_bytes: int | None
    ports: Sequence[tuple[str, int]] = ()
    taken: Sequence[tuple[str, int]] = ()


def machine_here(runs_dir: str, ports: Sequence[tuple[str, int]]) -> Machine:
    """Look; takes some milliseconds. `ports`: what each is for, and its number."""
    return Machine(
        python=platform.python_version(),
        cores=cores_here(),
        limits=limits_here(),
        clock_resolution_s=time.get_clock_info("monotonic").resolution,
        clock_read_s=_clock_read_s(),
        clock_source=_text(_CLOCK_SOURCE),
        synchronised=synchronised(),
        stamps=stamps_here(),
        load_1min=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        memory_free_bytes=memory_free_bytes(),
        runs_dir=runs_dir,
        disk_free_bytes=disk_free_bytes(Path(runs_dir)),
        ports=tuple(ports),
        taken=tuple(port for port in ports if not is_free(port[1])),
    )


def cores_here(groups: Path = _GROUPS) -> float:
    """Cores that this process may use: its affinity, or less by the quota of its control group (v2)."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota, _, period = (_text(groups / "cpu.max") or "max").partition(" ")
    if quota.isdigit() and period.isdigit():
        cores = min(cores, int(quota) / int(period))
    return cores


def memory_free_bytes(groups: Path = _GROUPS, meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Memory that a new process can have without swapping: MemAvailable, or less by the control group's
    limit."""
    free = None
    for line in (_text(meminfo) or "").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    most, used = _text(groups / "memory.max") or "", _text(groups / "memory.current") or ""
    if most.isdigit() and used.isdigit():
        left = max(int(most) - int(used), 0)
        free = left if free is None else min(free, left)
    return free


def disk_free_bytes(folder: Path) -> int | None:
    """Free on the file system that `folder` is on, or will be once it is made."""
    there = folder.resolve()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        return shutil.disk_usage(there).free
    except OSError:
        return None


def synchronised() -> bool | None:
    """Does the kernel say that its wall clock follows a reference? `adjtimex(2)` with no modes only reads,
    and its status has STA_UNSYNC while nobody disciplines the clock. 64-bit Linux only."""
    if sys.platform != "linux" or struct.calcsize("l") != 8:
        return None
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None).adjtimex(buffer) < 0:
        return None
    (status,) = struct.unpack_from("@i", buffer, _STATUS_AT)
    return not status & _STA_UNSYNC


def stamps_here() -> str:
    """ "kernel" when bytes on a connection of the client's own carry the kernel's stamp of their arrival: one
    is opened over loopback, left unread for a moment, and its stamp is compared with when it was read."""
    wait_s = 0.02
    with socket.create_server(("127.0.0.1", 0)) as server:
        deadline_ns = time.monotonic_ns() + round(_STAMP_LIMIT_S * 1e9)
        wire = open_wire((socket.AF_INET, server.getsockname()), deadline_ns, None, "")
        try:
            peer, _ = server.accept()
            with peer:
                for _ in range(3):  # the kernel may take some milliseconds to begin stamping
                    peer.sendall(b"x")
                    gevent.socket.wait_read(wire.fileno(), timeout=_STAMP_LIMIT_S)
                    time.sleep(wait_s)
                    wire.receive()
                    if wire.handled_ns - wire.stamp_ns > wait_s * 1e9 / 2:
                        return Wire.stamps
        finally:
            wire.close()
    return "user"


def is_free(port: int) -> bool:
    """Can a server of this machine listen at `port`?"""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def gpus_here() -> tuple[str, ...] | None:
    """Names of this machine's NVIDIA GPUs by nvidia-smi; None where there is no nvidia-smi, or it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_GPU_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def _clock_read_s() -> float:
    began = time.perf_counter()
    for _ in range(_READINGS):
        time.monotonic_ns()
    return (time.perf_counter() - began) / _READINGS


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
