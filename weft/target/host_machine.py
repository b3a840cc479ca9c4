"""The machine of this host: measured and stored by ``weft calibrate``, or shipped for its CPU."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from weft.runtime.devices.cpu import host as host_cpu
from weft.support.cache import default_directory
from weft.support.errors import TargetError
from weft.target.machine import Machine
from weft.target.machine_tables import knows_cpu, machine_of, machine_of_cpu
from weft.target.topology import Topology, cache_sizes, read_topology

FORMAT = 1  # of the stored files, and of what they measure


@functools.lru_cache(maxsize=1)
def host_topology() -> Topology:
    """The CPUs and caches of this machine, read once."""
    return read_topology()


def host_machine(cpu: str, arch: str, vector_bits: int) -> tuple[str, int, int, int]:
    """The machine of the host, as a target's text names it, and its cache sizes L1, L2 and L3."""
    stored = stored_machine()
    text = stored or machine_of_cpu(cpu, arch, vector_bits)
    is_known = bool(stored) or knows_cpu(cpu, arch)
    return text, *cache_sizes(host_topology(), machine_of(text), is_known=is_known)


def needs_calibration(cpu: str, arch: str) -> bool:
    """Whether nothing is known about the CPU of this host but its architecture."""
    return not knows_cpu(cpu, arch) and not stored_machine()


def stored_machine() -> str:
    """The measured machine of this host as text; empty if there is none or it cannot be read."""
    try:
        text = str(_stored()["machine"])
        machine_of(text)
    except (OSError, ValueError, KeyError, TypeError, TargetError):
        return ""
    return text


def stored_report() -> dict[str, Any]:
    """The report that was stored with the measured machine; empty if there is none."""
    try:
        report = _stored()["report"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return report if isinstance(report, dict) else {}


def _stored() -> Any:
    return json.loads(stored_path().read_bytes())


def store_machine(machine: Machine, report: object) -> Path:
    """Store a measured machine of this host with a ``report``, and return the file.

    The file is complete or absent at every time. Raises ``OSError`` if it cannot be written.
    """
    path = stored_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    text = json.dumps({"machine": str(machine), "host": host_facts(), "report": report}, indent=1)
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path


def stored_path() -> Path:
    """The file for this CPU model, number of cores, kernel and quota."""
    key = hashlib.sha256(json.dumps(host_facts()).encode()).hexdigest()[:24]
    return default_directory() / "machines" / f"{key}.json"


def host_facts() -> list[object]:
    """The properties of this host on which a measured machine depends."""
    topology = host_topology()
    kernel = os.uname().release if hasattr(os, "uname") else ""
    return [FORMAT, host_cpu.model_name(), len(topology.cores), topology.threads_per_core,
            topology.quota, kernel]
