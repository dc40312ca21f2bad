"""A filter of system calls for bubblewrap: what holds memory unseen by limits, and rarely used parts of the kernel.

Memory of memfd_create and of System V segments and queues is in no process and no folder, so a watcher cannot count it.
Of sockets those of a namespace are left: a namespace of networks does not hold AF_VSOCK, which leads out of a virtual
machine to its host.
Source of the format: Documentation/userspace-api/seccomp_filter.rst of Linux; a program is an array of sock_filter.
"""

from __future__ import annotations

import platform
import struct
from typing import Final

# Machine: its number in AUDIT_ARCH, its system call socket, and memfd_create, memfd_secret, shmget, msgget, semget,
# add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd, io_uring_setup, ptrace.
_MACHINES: Final = {
    "x86_64": (0xC000003E, 41, (319, 447, 29, 68, 64, 248, 249, 250, 321, 298, 323, 425, 101)),
    "aarch64": (0xC00000B7, 198, (279, 447, 194, 186, 190, 217, 218, 219, 280, 241, 282, 425, 117)),
}
_FAMILIES: Final = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_LOAD, _JUMP_EQUAL, _JUMP_FROM, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001  # SECCOMP_RET_ERRNO with EPERM
_X32: Final = 0x40000000  # the other numbers of x86_64


def seccomp_filter() -> bytes | None:
    """The filter as bubblewrap reads it; None on a machine with numbers unknown here."""
    numbers = _MACHINES.get(platform.machine())
    if numbers is None:
        return None
    machine, socket, refused = numbers
    some, end = len(_FAMILIES), len(refused) + len(_FAMILIES) + 2  # comparisons of families; instructions before _ALLOW
    code = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 0, end + 3, machine),
        (_LOAD, 0, 0, 0),
        (_JUMP_FROM, end + 1, 0, _X32),
        *((_JUMP_EQUAL, end - at, 0, number) for at, number in enumerate(refused)),
        (_JUMP_EQUAL, 0, some + 1, socket),
        (_LOAD, 0, 0, 16),  # the lower half of the first argument
        *((_JUMP_EQUAL, some - 1 - at, some - at == 1, number) for at, number in enumerate(_FAMILIES)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
