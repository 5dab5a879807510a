"""Remote shards: mounts made by the program `penstock`, which last as long as a program uses them."""
from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
import weakref
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple, Union

from . import errors

Path = Union[str, "os.PathLike[str]"]
_log = logging.getLogger("penstock")

_URL = r"(?:https?|s3|gs|az|hf)://"
_IS_FILE = re.compile(r"\.(tar|tzst|tgz|jsonl|ndjson|json|bin)(\.(zst|gz|lz4))?$", re.IGNORECASE)
_SHOWN_AS_TAR = re.compile(r"\.(tar\.(zst|gz|lz4)|tzst|tgz)(?=$|[,}])", re.IGNORECASE)
_CAP_SYS_ADMIN = 21
_REMEDY = (
    "In a container: docker run --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined "
    "(Kubernetes: privileged: true). Or mount on the host and pass the folder in: `penstock mount '%s' "
    '/data/train` there, docker run -v /data/train:/data/train:ro,rslave, and penstock.Loader("/data/train")'
)


class MountError(errors.Error):
    """A source cannot be mounted on this machine; the text has the reason and the remedy."""


class Mount:
    """A source that is mounted read-only as a folder on this node. See mount().

    The mount stays as long as this object is open, or another one of the same source in another process or in a
    forked child. close(), the end of a `with`, and any end of the process release the mount. Open files stay
    readable.
    """

    path: str

    def __init__(self, path: str, owner: int) -> None:
        self.path = path
        self._end = weakref.finalize(self, os.close, owner)

    def close(self) -> None:
        """Releases the mount. It is unmounted shortly after its last user has released it."""
        self._end()

    def __enter__(self) -> "Mount":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return "penstock.Mount(%r%s)" % (self.path, "" if self._end.alive else ", closed")


def mount(
    source: Union[Path, Mapping[str, Path]],
    *,
    cache_dir: Optional[Path] = None,
    cache_size: Union[None, str, int] = None,
    endpoint: Optional[str] = None,
    profile: Optional[str] = None,
    no_sign_request: bool = False,
    header: Union[None, str, Sequence[str]] = None,
    **options: Any,
) -> Mount:
    """Mounts a source until the end of the `with`, or of the process. A source is a URL of https, s3, gs, az or hf,
    which may have braces or name a folder; or a dict of names to several URLs, each of which gets a folder:

        with penstock.mount("s3://bucket/train/") as folder:
            print(os.listdir(folder))

    All processes of a node that mount the same source with the same credentials and options share one mount, and the
    last of them unmounts it. A mount needs the program `penstock`, /dev/fuse, and for users other than root
    fusermount3 (package fuse3).

    cache_dir: where data is kept; by default PENSTOCK_CACHE_DIR, else ~/.cache/penstock (XDG_CACHE_HOME; for
        root /var/cache/penstock). On a local disk: NFS and tmpfs are refused.
    cache_size: the cache's limit, as "200G" or "50%" (of the disk); by default 20 % of the free space there.
    endpoint, profile, no_sign_request: for buckets. Credentials are found where the clouds' own tools find them.
    header: "Name: value", or several, sent with each request.
    Other options are those of `penstock mount` (--max-connections as max_connections=), with True for a flag without
    a value. Options of the cache apply if the cache is not in use yet.

    Raises MountError with the reason and the remedy."""
    several = source if isinstance(source, Mapping) else {"": source}
    for one in several.values():
        refuse_pipe(one)
    texts = [("%s=" % name if name else "") + os.fspath(one) for name, one in several.items()]
    command = [_program(texts[0]), "mount"]
    _check_fuse(texts[0])
    given = {"cache_dir": cache_dir, "cache_size": cache_size, "endpoint": endpoint, "profile": profile,
             "no_sign_request": no_sign_request, **options}
    arguments: List[str] = []
    for name, values in given.items():
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if value is None or value is False:
                continue
            text = os.fspath(value) if isinstance(value, os.PathLike) else value
            arguments.append("--" + name.replace("_", "-") + ("" if value is True else "=%s" % text))
    headers = [header] if isinstance(header, str) else list(header or ())
    return _run(command, arguments, texts, headers)


def _run(command: List[str], arguments: List[str], sources: List[str], headers: List[str]) -> Mount:
    ours, theirs = socket.socketpair()
    try:
        with theirs, tempfile.TemporaryFile() as file:
            passed = [theirs.fileno()]
            if headers:  # by a file, so that `ps` does not show them
                file.write("\n".join(headers).encode())
                file.seek(0)
                passed.append(file.fileno())
                arguments = [*arguments, "--header=@/dev/fd/%d" % file.fileno()]
            process = subprocess.Popen(
                [*command, "--owner=%d" % theirs.fileno(), *arguments, "--", *sources], pass_fds=passed,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            text = process.communicate()[1].decode(errors="replace")
        except BaseException:
            process.kill()
            process.wait()
            raise
        lines = [line.replace("penstock mount: ", "", 1) for line in text.splitlines() if line]
        if process.returncode:
            raise MountError("\n".join(lines) or "penstock mount ended with %d" % process.returncode)
        for line in lines:
            # as Python spells it
            line = re.sub(r"--([a-z-]+) ([A-Z]+)", r'\1="\2" (of a Loader: mount={"\1": "\2"})', line)
            if "syslog is not running" in line:  # nothing is wrong with the mount
                _log.info(line)
                continue
            warnings.warn(line.replace("warning: ", "", 1), stacklevel=3)
        path = b""
        while not path.endswith(b"\0"):
            more = ours.recv(4096)
            if not more:
                raise MountError("%s: its daemon ended at once (see the system's log)" % sources[0])
            path += more
        return Mount(os.fsdecode(path[:-1]), ours.detach())
    except BaseException:
        ours.close()
        raise


def refuse_pipe(shards: Path) -> None:
    """Refuses "pipe:", WebDataset's way to read from stores."""
    if not isinstance(shards, str) or not shards.startswith("pipe:"):
        return
    found = re.search(_URL + r"[^\s'\"]+", shards)
    raise ValueError("%r: pipe: is not read: a program's output cannot be read from its middle; give %s" % (
        shards, "the URL itself: %r" % found.group() if found
        else "a URL (s3://, gs://, az://, hf://, https://), or files"))


def _fail(text: str, source: str) -> NoReturn:
    raise MountError("%s cannot be mounted: %s. %s" % (source, text, _REMEDY % source))


def _program(source: str) -> str:
    more = os.path.join(sys.prefix, "bin") + ":/usr/local/bin:/usr/bin"
    return shutil.which("penstock") or shutil.which("penstock", path=more) or _fail(
        "the program `penstock` is not in the PATH (install Penstock with its mount: the Python package "
        "alone reads local files)", source)


def _status(name: str) -> int:
    """The hexadecimal number in a line of this process's status."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith(name + ":")), -1)


def _check_fuse(source: str) -> None:
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        _fail("there is no /dev/fuse (load it: modprobe fuse)", source)
    except OSError as e:
        _fail("/dev/fuse: %s" % os.strerror(e.errno or 0), source)
    if os.geteuid() == 0:
        if not _status("CapEff") >> _CAP_SYS_ADMIN & 1:
            _fail("mounting is not permitted here (no CAP_SYS_ADMIN)", source)
    elif not shutil.which("fusermount3"):
        _fail("fusermount3 is not installed (package fuse3), which users other than root need", source)
    elif _status("NoNewPrivs") == 1:
        _fail("no_new_privs is set, so fusermount3 cannot mount", source)


def _is_remote(shards: str) -> bool:
    return re.match(_URL, shards, re.IGNORECASE) is not None


def _below(url: str) -> str:
    """The path of a URL's shards in the URL's mount; "": all files of the mount."""
    path = re.split(r"[?#]" if url[:4].lower() == "http" else "#", url, maxsplit=1)[0]
    plain = re.split(r"[{*?\[]", path, maxsplit=1)[0]
    slash = plain.rfind("/", path.index("://") + 3)
    rest = path[slash + 1 :] if slash > 0 else ""
    if path.endswith("/") or not (plain != path or _IS_FILE.search(rest)):  # a folder, or a list of URLs
        return ""
    return _SHOWN_AS_TAR.sub(".tar", rest)


def _with_indexes(part: str, indexes: bool, tokens: bool) -> str:
    """The URL of shards with the files beside them that the loader reads, too."""
    if tokens and part.endswith(".bin"):
        return part[: -len(".bin")] + "{.bin,.idx}"
    if tokens and part.endswith(".ds"):
        return part + "{,.index,.loss}"
    return part + "{,.psx}" if indexes else part


def local(
    shards: Sequence[Path], options: Mapping[str, Any], indexes: bool, tokens: bool = False
) -> Tuple[List[Path], List[Mount]]:
    """The paths of shards, with URLs replaced by paths in mounts; and the mounts. indexes: the shards' indexes are
    needed. tokens: they may be files of tokens, with indexes of their documents."""
    mounts: Dict[str, Mount] = {}
    paths: List[Path] = []

    def place(part: str) -> str:
        if not _is_remote(part):
            return part
        below = _below(part)
        source = _with_indexes(part, indexes, tokens) if below and "?" not in part else part
        if source not in mounts:
            mounts[source] = mount(source, **options)
        return os.path.join(mounts[source].path, below)

    try:
        for given in shards:
            refuse_pipe(given)
            paths.append("::".join(map(place, given.split("::"))) if isinstance(given, str) else given)
    except BaseException:
        for one in mounts.values():
            one.close()
        raise
    return paths, list(mounts.values())
