"""Sizes of matrices, available memory, and a check before large allocations.

Code that allocates a large array calls :func:`check_fits` first.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

import torch

from .errors import BudgetError

NEGLIGIBLE = 2**26
"""Bytes that are always assumed to be available, because asking the system takes time."""


def symmetric_bytes(size: int) -> int:
    """Return the bytes of a symmetric matrix of float64, both halves included."""
    return 8 * size * size


def dense_bytes(n_rows: int, n_columns: int) -> int:
    """Return the bytes of a matrix of float64."""
    return 8 * n_rows * n_columns


def available_bytes(device: torch.device | str = "cpu", root: Path = Path("/")) -> int | None:
    """Return the memory available to new arrays on a device; None if the system does not report it.

    On a CPU this is the memory available without swapping, or the rest of a control group's limit if that is less.
    ``root`` is the root of the file system.
    """
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # Memory that torch has reserved but not allocated is available to torch.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    limits = [limit for limit in (_system_bytes(root), _control_group_bytes(root)) if limit is not None]
    return min(limits, default=None)


def share_of(device: torch.device, most: int) -> int:
    """Return the bytes for the blocks of a computation on a GPU: ``most``, or fewer on a small or busy one."""
    available = available_bytes(device)
    return most if available is None else min(most, max(2**20, available // 16))


def check_fits(
    needed: int, device: torch.device | str, purpose: str, remedy: str = "use fewer rows or witnesses"
) -> None:
    """Raise :class:`BudgetError`, before an allocation, if a device has fewer bytes available."""
    available = None if needed < NEGLIGIBLE else available_bytes(device)
    if available is not None and needed > available:
        raise BudgetError(
            f"expected {purpose} to fit into the memory of {torch.device(device)}, but it needs "
            f"{format_bytes(needed)} and {format_bytes(available)} are available: {remedy}"
        )


def format_bytes(n_bytes: float) -> str:
    """Return a number of bytes as text, in binary units."""
    if n_bytes > 2**100:
        return "far more than any machine has"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.3g} {unit}" if unit != "B" else f"{n_bytes:.0f} B"
        n_bytes /= 1024
    return f"{n_bytes:,.3g} TiB" if n_bytes < 1000 else f"{n_bytes:,.0f} TiB"


def _system_bytes(root: Path) -> int | None:
    with suppress(OSError):
        if line := re.search(r"^MemAvailable:\s*(\d+)", (root / "proc/meminfo").read_text(), re.MULTILINE):
            return 1024 * int(line[1])
    with suppress(AttributeError, OSError, ValueError):  # macOS and the BSDs report only the total
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


_CONTROL_GROUPS = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Folder, limit, usage and cached files of control groups of the second and the first version."""


def _control_group_bytes(root: Path) -> int | None:
    """Return the memory left by the tightest control group of this process; containers and batch systems set them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    remaining: list[int] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in _CONTROL_GROUPS.keys() & controllers.split(","):
            mount, *names = _CONTROL_GROUPS[controller]
            folder, inner = root / mount, root / mount / path.strip("/")
            # Inside a container the path may be the host's: then the group is the root of the mounted tree.
            for group in (inner, *inner.parents) if inner.is_dir() else (folder,):
                remaining += _left_in_group(group, *names) if group.is_relative_to(folder) else []
    return min(remaining, default=None)


def _left_in_group(group: Path, limit: str, usage: str, cache: str) -> list[int]:
    try:
        allowed = int((group / limit).read_text())  # "max" is no number, and no limit
        used = int((group / usage).read_text())
        # Cached files count as usage, but the kernel drops them when memory is needed.
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return []
    return [max(0, allowed - used + int(statistics.get(cache, 0)))]
