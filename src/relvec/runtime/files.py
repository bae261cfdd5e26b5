"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["check_writable", "write_atomically"]


def check_writable(path: str | os.PathLike[str]) -> os.stat_result | None:
    """Raise an OSError that names `path` if no file can be written there; return what is there now, or None."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        found = None
    except OSError as error:  # a circle of links, a name that is too long
        raise OSError(error.errno, f"cannot write here: {error.strerror}", os.fspath(path)) from None
    folder = os.path.dirname(os.path.realpath(path))
    if found is None:
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, f"the folder {folder} does not exist", os.fspath(path))
        needed = [folder]
    else:
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "this is a folder; give the name of a file", os.fspath(path))
        if stat.S_ISSOCK(found.st_mode):
            raise OSError(errno.ENXIO, "this is a socket; give the name of a file", os.fspath(path))
        # A file that may not be written is not replaced either.
        needed = [os.fspath(path), folder] if stat.S_ISREG(found.st_mode) else [os.fspath(path)]
    for place in needed:
        if not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, f"you may not write to {os.fspath(place)}", os.fspath(path))
    return found


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to a file that takes the place of `path` when it is complete; after an error the old one stays.

    Symbolic links are followed, and the new file has the mode and the owner of the old one. A device or a pipe is
    written into, never replaced. A file that may not be written is refused. Errors name `path`.
    """
    old = check_writable(path)
    try:
        if old is None or stat.S_ISREG(old.st_mode):
            _replace(Path(os.path.realpath(path)), data, old)
        else:
            with open(path, "wb") as file:
                file.write(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


def _replace(target: Path, data: bytes, old: os.stat_result | None) -> None:
    temporary = target.with_name(f".relvec-{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    # Never more open than the old file, not even before it is complete.
    handle = os.open(temporary, flags, 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if old is not None:
            _copy_mode(old, temporary)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            os.unlink(temporary)
        raise


def _copy_mode(old: os.stat_result, new: Path) -> None:
    """Give a new file the owner, where that is allowed, and the mode of an old one."""
    if os.name == "posix" and (old.st_uid, old.st_gid) != (new.stat().st_uid, new.stat().st_gid):
        with suppress(PermissionError):  # only the superuser may
            os.chown(new, old.st_uid, old.st_gid)
    os.chmod(new, stat.S_IMODE(old.st_mode) & 0o777)
