"""Which folders and files other users may write: a user who writes cached code runs it here.

A folder is safe if it belongs to the user of this process or to root, and other users may not write
it. The folders above it do not matter: users who may rename them cannot give other files to the
user of this process.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def objection(found: os.stat_result, path: Path) -> str | None:
    """Why a file or folder with status ``found`` is not safe, as a sentence; ``None`` if it is."""
    me = os.geteuid()
    if found.st_uid not in (me, 0):
        return (f"{path} belongs to {_user(found.st_uid)}, and this process runs as {_user(me)}")
    if found.st_mode & stat.S_IWOTH:
        return f"all users may write {path}"
    if found.st_mode & stat.S_IWGRP and not _is_private_group(found.st_gid):
        return f"the users of group {_group(found.st_gid)} may write {path}"
    return None


def folder_objection(path: Path) -> str | None:
    """``objection`` to a folder, ``None`` also if there is none; raises ``OSError``."""
    try:
        return objection(path.stat(), path)
    except FileNotFoundError:
        return None


def make_private(folder: Path) -> None:
    """Make a folder that only the user may enter, and those above it; raises ``OSError``."""
    missing = [folder, *folder.parents]
    missing = missing[: next((n for n, path in enumerate(missing) if path.is_dir()), len(missing))]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def _is_private_group(gid: int) -> bool:
    """Whether a group has the user of this process alone, as many systems give each user."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and user.pw_gid == gid \
        and not set(group.gr_mem) - {user.pw_name}


def _user(uid: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    import grp

    try:
        return f"{grp.getgrgid(gid).gr_name} ({gid})"
    except KeyError:
        return str(gid)
