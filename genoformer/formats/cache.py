"""Where indexes are kept: a cache folder of the user, never beside the input."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

ENVIRONMENT = "GENOFORMER_CACHE"


def index_path(source: Path, suffix: str, *, is_temporary: bool = False) -> Path:
    """Return where the index of a file is, or is to be written; a changed file has another index.

    The folder is ``$GENOFORMER_CACHE``, or ``~/.cache/genoformer``, or, where that cannot be written, a temporary
    folder that lasts as long as the process, as for a temporary source. Indexes of earlier contents of the same path
    are removed.
    """
    folder = _temporary_folder() if is_temporary else _folder()
    status = source.stat()
    path_digest = hashlib.sha256(os.fsencode(source.resolve())).hexdigest()[:16]
    content = f"{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}.{status.st_ino}"
    content_digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    wanted = folder / f"{path_digest}.{content_digest}{suffix}"
    for stale in folder.glob(f"{path_digest}.*{suffix}"):
        if stale != wanted and not stale.name.endswith(".part"):
            stale.unlink(missing_ok=True)
    return wanted


def cache_folder() -> tuple[Path, bool]:
    """Return where indexes are kept, and whether that is for good or, where nothing else can be written, for now."""
    folder = _folder()
    return folder, folder != _temporary_folder()


def _folder() -> Path:
    chosen = os.environ.get(ENVIRONMENT)
    try:
        folder = Path(chosen) if chosen else Path.home() / ".cache" / "genoformer"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # as root and on network disks only trying tells
            return folder
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return _temporary_folder()


@cache
def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="genoformer-cache-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
