"""How a plain file of a host is read: with bounds, never what blocks, never credentials; and what is mounted where."""

from __future__ import annotations

import errno
import os
import stat
from fnmatch import fnmatchcase

_BLOCKING = (
    "proc/kmsg",
    "proc/kcore",
    "proc/vmcore",
    "proc/sysrq-trigger",
    "proc/*/mem",
    "proc/*/pagemap",
    "*/trace_pipe",
)
_CREDENTIALS = (
    "*/containers/auth.json",
    "*/containers/*/auth.json",
    "*/.docker/config.json",
    "*/.dockercfg",
    "*/.netrc",
    "*/.ssh/*",
    "etc/*shadow*",
    "etc/ssh/*_key",
    "etc/gpuconsole/units/*",
    "*/.config/gpuconsole/units/*",
    "*.key",
)


def refused(real: str) -> str:
    """Why a file's text is never read; "" = it may be."""
    below = real.lstrip("/")
    if any(fnmatchcase(below, pattern) for pattern in _BLOCKING):
        return "not read: it would wait for more, or take from others"
    if any(fnmatchcase(below, pattern) for pattern in _CREDENTIALS):
        return "not read: it holds credentials"
    return ""


def is_log(real: str) -> bool:
    """Whether the end of a file tells more than its beginning."""
    return real.startswith("/var/log/") or real.endswith(".log")


def read(path: str, most: int, tail: bool) -> tuple[bytes, bool]:
    """(bytes, whether that is not all). Never waits: O_NONBLOCK, and plain files only."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was another thing when it was looked at
            raise OSError(errno.EINVAL, "it is no plain file")
        size = os.fstat(descriptor).st_size
        begin = max(0, size - most) if tail else 0
        if begin:
            os.lseek(descriptor, begin, os.SEEK_SET)
        parts: list[bytes] = []
        length = 0
        while length <= most:  # files of /proc come in pieces
            part = os.read(descriptor, most + 1 - length)
            if not part:
                break
            parts.append(part)
            length += len(part)
    finally:
        os.close(descriptor)
    data = b"".join(parts)
    if begin:
        data = data.partition(b"\n")[2] or data
    return data[:most], bool(begin) or len(data) > most


def mount(path: str) -> tuple[str, str, str]:
    """(type, device, mount point) of the file system that holds a path, from this process's mounts."""
    best = ("", "", "")
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            rows = [row.split() for row in file]
    except OSError:
        return best
    for row in rows:
        if len(row) < 3:
            continue
        mount = _octal(row[1])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[2]):  # of two at one place the later hides the earlier
            best = (row[2], _octal(row[0]), mount)
    return best


def _octal(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
