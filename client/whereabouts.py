"""Where a target is, seen from here: on this machine, in a private network, or public. And whether here is a
container."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import gevent.socket

Resolve = Callable[[str], Iterable[str]]
"""Gives the addresses of a host name as text. Raises OSError when there are none."""

_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONTAINER_GROUPS = re.compile(r"docker|containerd|kubepods|libpod|lxc")


def resolve(host: str) -> list[str]:
    """The addresses of a name as the system knows them. Raises OSError (socket.gaierror, or UnicodeError for
    a name that cannot be one)."""
    return [str(found[4][0]) for found in gevent.socket.getaddrinfo(host, None)]


def public_address(host: str, resolve: Resolve = resolve) -> str | None:
    """The first address of `host` that the whole internet can reach, None when all are loopback, private,
    link-local or otherwise reserved (RFC 6890, as `ipaddress` has it).

    What counts is the address, not the name: "gpu-box.local" and "vllm" are private because of where they
    lead. Raises OSError or UnicodeError when the name has no address.
    """
    literal = _address(host)
    addresses = [host] if literal is not None else list(resolve(host))
    return next((each for each in addresses if _reaches_out(each)), None)


def is_public(host: str, resolve: Resolve = resolve) -> bool:
    """Does any address of `host` belong to the public internet? Raises as `public_address`."""
    return public_address(host, resolve) is not None


def is_loopback(host: str) -> bool:
    """Does `host`, an address or a name, mean this very machine (or container)?"""
    address = _address(host)
    if address is None:
        return host.lower().rstrip(".") == "localhost"
    return address.is_loopback


def in_container(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> bool:
    """Does this process seem to run inside a container? Told by the marks that Docker, Podman and Kubernetes
    leave, and by the control groups of the first process."""
    if "KUBERNETES_SERVICE_HOST" in environ or any((root / mark).exists() for mark in _CONTAINER_FILES):
        return True
    try:
        groups = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return _CONTAINER_GROUPS.search(groups) is not None


def _reaches_out(text: str) -> bool:
    address = _address(text)
    return address is None or address.is_global


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
