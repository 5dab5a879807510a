"""Writes shards from Python. The same samples produce identical shards."""
from __future__ import annotations

import io
import json
import os
import re
import warnings
from typing import Any, Callable, Dict, Mapping, Optional, Union

from . import _penstock

_IMAGES = {"jpg": ("JPEG", {"quality": 95}), "jpeg": ("JPEG", {"quality": 95}), "png": ("PNG", {}), "webp": ("WEBP", {"quality": 95}),
           "ppm": ("PPM", {}), "pgm": ("PPM", {})}


def encode(suffix: str, value: Any) -> bytes:
    """A value as the bytes of a member with that suffix; TypeError if there is no rule."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    last = suffix.rpartition(".")[2].lower()
    if last == "json":
        return json.dumps(value, ensure_ascii=False).encode()
    if last == "npy":
        import numpy

        file = io.BytesIO()
        numpy.save(file, numpy.asarray(value), allow_pickle=False)
        return file.getvalue()
    if last in _IMAGES and (hasattr(value, "save") or hasattr(value, "__array_interface__")):
        from PIL import Image

        file = io.BytesIO()
        name, options = _IMAGES[last]
        (value if hasattr(value, "save") else Image.fromarray(value)).save(file, name, **options)
        return file.getvalue()
    if hasattr(value, "item") and not getattr(value, "shape", None):  # a number of NumPy's or torch's
        value = value.item()
    if isinstance(value, (int, float)):
        return repr(int(value) if isinstance(value, bool) else value).encode()
    raise TypeError("there is no rule to write a %s as .%s: give bytes, or ShardWriter(encoder=...)" % (type(value).__name__, suffix))


class ShardWriter:
    """Writes samples into shards, as WebDataset's ShardWriter does:

        with penstock.ShardWriter("train-%06d.tar", maxcount=1000) as sink:
            for i, (image, label) in enumerate(dataset):
                sink.write({"__key__": "%08d" % i, "jpg": image, "cls": label})

    The same samples give the same bytes: members are sorted by suffix, without owners and times. A shard is written
    as NAME.tmp-PID and renamed once it is complete and on the disk. Then its index is made beside it (index=False:
    none); the loader needs the index for lengths, for orders over all samples, and for more than one rank. If the
    block is left by an exception, the unfinished shard is removed; those before it stay.

    pattern: of the names, with one %d or %06d; shards whose names end in .zst are compressed, in zstd's seekable format.
    maxcount, maxsize: limits of a shard: samples, and bytes before compression (a single sample may be larger).
    start_shard: the first number.
    index: whether each shard gets an index.
    level: of zstd, 1 to 19; by default 3.
    overwrite: whether existing shards may be replaced; otherwise they are an error.
    post: called with each shard's name, once the shard and its index are complete.
    encoder: encoder(suffix, value) returns bytes, or NotImplemented for values that penstock encodes: bytes and str
        as they are, numbers in decimals, for .json what json.dumps() takes, for .npy arrays, for .jpg, .png, .webp,
        .ppm images of PIL or u8 arrays (JPEG and WebP: quality 95).

    write() takes a dict: "__key__", unique among neighbours and without a dot in its last part; then suffixes with their
    values. Other names that begin with "_" and values None are left out.
    """

    def __init__(
        self,
        pattern: Union[str, "os.PathLike[str]"],
        maxcount: int = 100000,
        maxsize: float = 3e9,
        post: Optional[Callable[[str], Any]] = None,
        start_shard: int = 0,
        *,
        index: bool = True,
        level: Optional[int] = None,
        overwrite: bool = False,
        encoder: Optional[Callable[[str, Any], Any]] = None,
    ) -> None:
        self._pattern = os.fspath(pattern)
        if len(re.findall(r"%(?:0\d+)?d", self._pattern)) != 1 or self._pattern.count("%") != 1:
            raise ValueError("pattern: %r needs one %%d or %%06d, where a shard's number goes, and no other %%" % self._pattern)
        if maxcount < 1 or maxsize < 1:
            raise ValueError("maxcount and maxsize are at least 1, not %r and %r" % (maxcount, maxsize))
        if level is not None and not self._pattern.endswith(".zst"):
            raise ValueError("level: %r is not compressed; its name must end in .zst" % self._pattern)
        if not self._pattern.endswith((".tar", ".tar.zst")):
            raise ValueError("pattern: %r must end in .tar or .tar.zst" % self._pattern)
        self._level = (3 if level is None else level) if self._pattern.endswith(".zst") else 0
        self._maxcount, self._maxsize = maxcount, maxsize
        self._post, self._index, self._overwrite, self._encoder = post, index, overwrite, encoder
        self._shard: Optional[_penstock.Shard] = None
        self._key: Optional[str] = None  # of the sample written last
        self._closed = False
        self.shard = start_shard  #: number of the next shard
        self.fname: Optional[str] = None  #: the newest shard's name
        self.count = 0  #: samples in it
        self.size = 0  #: bytes in it
        self.total = 0  #: samples in all shards

    def write(self, sample: Mapping[str, Any]) -> None:
        if self._closed:
            raise ValueError("this ShardWriter is closed")
        members = self._members(sample)
        nbytes = sum(_penstock.member_nbytes(name, len(data)) for name, data in members.items())
        if self._shard is not None and (self.count >= self._maxcount or self.size + nbytes > self._maxsize):
            self._finish()
        if self._shard is None:
            self._open()
        assert self._shard is not None
        try:
            for name, data in members.items():
                self._shard.add(name, data)
        except BaseException:
            self._abort()  # the shard may contain a part of the sample
            raise
        self._key = sample["__key__"]
        self.count += 1
        self.size += nbytes
        self.total += 1

    def _members(self, sample: Mapping[str, Any]) -> Dict[str, bytes]:
        key = sample.get("__key__")
        if not isinstance(key, str) or not key or key.startswith("/") or "." in key.rpartition("/")[2] or key.endswith("/"):
            raise ValueError('write: "__key__" must be a text without a dot in its last part, such as "train/000017", not %r' % (key,))
        if re.match(r"__[^/]*__(/|$)", key):
            raise ValueError("write: key %r: members with names like __this__ belong to no sample" % key)
        if key == self._key:
            raise ValueError("write: two samples with key %r, one after the other, would be one sample; number them" % key)
        members: Dict[str, bytes] = {}
        for suffix in sorted(sample):
            if suffix.startswith("_") or sample[suffix] is None:
                continue
            if not suffix or "/" in suffix:
                raise ValueError("write: sample %r: %r is not a suffix" % (key, suffix))
            if suffix.lower() in (name.lower()[len(key) + 1 :] for name in members):
                raise ValueError("write: sample %r has .%s twice: suffixes must differ by more than capitals" % (key, suffix))
            try:
                data = NotImplemented if self._encoder is None else self._encoder(suffix, sample[suffix])
                members["%s.%s" % (key, suffix)] = encode(suffix, sample[suffix]) if data is NotImplemented else bytes(data)
            except (TypeError, ValueError) as e:
                # a subclass may take other arguments
                kind = TypeError if isinstance(e, TypeError) else ValueError
                raise kind("write: sample %r: .%s: %s" % (key, suffix, e)) from e
        if not members:
            raise ValueError("write: sample %r has no member" % key)
        return members

    def _open(self) -> None:
        name = self._pattern % self.shard
        if not self._overwrite and os.path.exists(name):
            raise FileExistsError("%s exists already; overwrite=True replaces it, start_shard=%d continues after it"
                                  % (name, self.shard + 1))
        folder = os.path.dirname(name)
        if folder and not os.path.isdir(folder):
            os.mkdir(folder)  # not its parents, which may be on a disk that is not mounted
        self._shard = _penstock.Shard(name, self._level)
        self.fname = name
        self.shard += 1
        self.count = self.size = 0

    def _finish(self) -> None:
        shard, self._shard, self._key = self._shard, None, None
        if shard is not None:
            shard.finish(self._index)
            if self._post is not None:
                assert self.fname is not None
                self._post(self.fname)

    def _abort(self) -> None:
        shard, self._shard = self._shard, None
        self._closed = True
        if shard is not None:
            shard.abort()

    def close(self) -> None:
        """Completes the last shard."""
        self._finish()
        self._closed = True

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._abort()

    def __del__(self) -> None:
        if getattr(self, "_shard", None) is not None:
            warnings.warn("%s was not written: its ShardWriter was not closed" % self.fname, ResourceWarning, source=self)
            self._abort()
