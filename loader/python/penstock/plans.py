"""Plans, for programs that know which files of a mount they will read."""
import errno
import fcntl
import json
import os
import struct
import threading
import warnings
from typing import Any, List, Optional, Sequence, Union

Path = Union[str, "os.PathLike[str]"]

_TEXT = 8184
_IOC_PLAN = 1 << 30 | (4 + _TEXT) << 16 | 0xD7 << 8 | 6  # fs/fuse/fuse.h
_BEAT_S = 15  # the mount drops a plan after 60 s of silence
_MOST = 100_000


class Plan:
    """A plan of a mount. It is valid until close() or the end of the `with` block. See plan()."""

    def __init__(self, mount: Path, files: Sequence[Path], *, job: Optional[str] = None, rank: int = 0,
                 world: int = 1, epoch: int = 0) -> None:
        self.mount = os.path.abspath(os.fspath(mount))
        self.missing: List[str] = []
        self._who = {"job": job or "python-%d" % os.getpid(), "rank": rank}
        self._world, self._epoch, self._done = world, epoch, 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        try:
            self._fd = os.open(os.path.join(self.mount, ".penstock", "plan"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, "not a penstock mount (penstock status lists them)", self.mount) from None
        try:
            self.next_epoch(files, epoch)
        except BaseException:
            os.close(self._fd)
            raise
        self._thread = threading.Thread(target=self._beat, name="penstock-plan", daemon=True)
        self._thread.start()

    @staticmethod
    def _is_below(file: Path, real: str) -> bool:
        return os.path.realpath(file).startswith(real + "/")

    def _names(self, files: Sequence[Path]) -> List[str]:
        names: List[str] = []
        self.missing = []
        real = os.path.realpath(self.mount)
        for file in files:
            path = os.path.normpath(os.path.join(self.mount, os.fspath(file)))
            if not (path.startswith(self.mount + "/") and os.path.isfile(path)):
                path = self.mount + os.path.realpath(file)[len(real):] if self._is_below(file, real) else ""
            if path and os.path.isfile(path):
                names.append(path[len(self.mount) + 1 :])
            else:
                self.missing.append(os.fspath(file))
        if self.missing:
            text = "%d of %d names are not files of %s, the first: %s; paths must be absolute, or relative to the mount or %s" % (
                len(self.missing), len(files), self.mount, self.missing[0], os.getcwd())
            if not names:
                raise FileNotFoundError(text)
            warnings.warn(text, stacklevel=4)
        return names[:_MOST]

    def next_epoch(self, files: Sequence[Path], epoch: Optional[int] = None) -> None:
        """Announces the files of another epoch. Earlier epochs have ended."""
        names = self._names(files)
        with self._lock:
            self._epoch = self._epoch + 1 if epoch is None else epoch
            self._files, self._done = names, 0
            self._tell_files()
            self._tell_position()

    def at(self, files_done: int) -> None:
        """Reports how many of the epoch's files were read. The mount sees opens by itself; this is for files that are
        kept open."""
        with self._lock:
            self._done = files_done
            self._tell_position()

    def _tell(self, line: Any) -> None:
        text = json.dumps({**line, **self._who}).encode() + b"\n"
        worst: Optional[OSError] = None
        for i in range(0, len(text), _TEXT):  # sends all parts, even if one fails, since the last one ends the line
            part = text[i : i + _TEXT]
            try:
                fcntl.ioctl(self._fd, _IOC_PLAN, bytearray(struct.pack("I%ds" % _TEXT, len(part), part)))
            except OSError as e:
                worst = e
        if worst:
            raise OSError(worst.errno, "%s: the plan was not taken: %s" % (self.mount, os.strerror(worst.errno or 0)))

    def _tell_files(self) -> None:
        self._tell({"penstock_plan": 1, "world": self._world, "epoch": self._epoch, "files": self._files})

    def _tell_position(self) -> None:
        self._tell({"penstock_position": 1, "epoch": self._epoch, "files_done": self._done})

    def _beat(self) -> None:
        while not self._ended.wait(_BEAT_S):
            with self._lock:
                try:
                    self._tell_position()
                except OSError:
                    try:
                        self._tell_files()  # the mount has dropped the plan: this process had been stopped
                    except OSError:
                        return  # the mount was unmounted, which ended the plan

    def close(self) -> None:
        """Ends the plan. Its files are then treated like any other files."""
        with self._lock:
            ended = self._ended.is_set()
            self._ended.set()
        if not ended:
            self._thread.join()
            os.close(self._fd)

    def __enter__(self) -> "Plan":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def plan(mount: Path, files: Sequence[Path], **options: Any) -> Plan:
    """Announces to a penstock mount which of its files will be read, in which order, so that they are fetched ahead and stay
    cached until they were read. `files`: paths, absolute, or relative to the mount or the current folder. For programs
    that know their list, such as WebDataset's shards of an epoch; not for a shuffling DataLoader, whose workers open
    files in an order of their own; penstock.Loader announces its plans itself.

        with penstock.plan("/mnt/train", shards) as plan:
            for sample in webdataset.WebDataset(shards, shardshuffle=False): ...
            plan.next_epoch(other_shards)

    Options: job (a name for `penstock status`), rank and world, epoch (a number). Names that are not files of the
    mount give a warning, and are in plan.missing; if no name is a file of the mount, FileNotFoundError is raised.
    OSError: the mount takes no plans (ENOTTY)."""
    return Plan(mount, files, **options)
