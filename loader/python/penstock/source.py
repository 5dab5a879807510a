"""Sources of columns: rows of Parquet files, tables and databases as samples."""
from __future__ import annotations

import array
import collections
import errno
import hashlib
import itertools
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _penstock, errors
from .map import at_exit

Path = Union[str, "os.PathLike[str]"]

_FOOTERS_AT_ONCE = 32
_FOOTER_FIRST = 64 << 10  # the end of a file that is read first
_FOOTERS_KEPT = 64  # parsed footers in memory
_BATCH_NBYTES = 1 << 20  # decoded bytes that are read at a time
_BATCH_ROWS = 4096
_BUFFER_NBYTES = 256 << 10  # of each column
_PAGE_NBYTES = 1 << 20  # usual size of a page
_TAIL = 8  # bytes after the footer: its length, and the magic number
_MAGIC = b"PAR1"
_CAUSE_SHARD = 3  # PENSTOCK_CAUSE_SHARD
_NO_ITERABLES = (
    "an iterable cannot be shuffled, divided among ranks or resumed, because it has neither a length nor a way to read from its "
    "middle. Divide the data into units, such as files or ranges of rows, and give a penstock.Source that counts and reads them")


class Source:
    """Where the rows of units come from, as Arrow data: a base class.

    A unit is a shard whose samples are rows. Its name, a string without line ends, is in the loader's list of shards:

        class Table(penstock.Source):
            def count(self, unit):
                return rows_in(unit)
            def read(self, unit, members, row):
                return pyarrow.table(...)

        penstock.Loader(["part-0", "part-1"], source=Table(), fields={"text": penstock.Text("text")})

    Both functions must be pure: the same unit always has the same rows in the same order. The loader calls them on
    several threads of its own. They must not call the loader. An exception makes the rows of the unit bad samples.
    """

    files = False  # True: a unit's name is a file's path, "#" and the name of a part of the file

    def count(self, unit: str) -> int:
        """Returns the number of rows of the unit."""
        raise NotImplementedError

    def read(self, unit: str, members: Sequence[str], row: int) -> Any:
        """Returns the rows of the unit from `row` on, as an object with the method __arrow_c_stream__: a pyarrow.Table
        or RecordBatchReader, a table of polars, DuckDB or nanoarrow. members: the names, in lower case, of the columns that
        fields read, with dots for columns inside structs; you may leave out all others."""
        raise NotImplementedError

    def held(self, unit: str, members: Sequence[str]) -> int:
        """Returns the bytes that such a stream holds in addition to the rows it returns; they count in memory_budget."""
        return 0


class Calls:
    """A source as libpenstock's threads call it: with an errno and a text in place of exceptions."""

    def __init__(self, source: Source) -> None:
        at_exit()
        self._source = source
        self.files = bool(getattr(source, "files", False))
        self.ranges: Optional[bytes] = None  # of units of files: where they begin and end there

    def count(self, unit: str) -> Tuple[Any, ...]:
        try:
            rows = int(self._source.count(unit))
            if not 0 <= rows < 1 << 62:
                raise ValueError("count() returned %d" % rows)
            return 0, rows
        except BaseException as error:  # no exception may reach a thread of the loader
            return _failure(error)

    def read(self, unit: str, members: List[str], row: int) -> Tuple[Any, ...]:
        try:
            data = self._source.read(unit, members, row)
            export = getattr(data, "__arrow_c_stream__", None)
            if export is None:
                raise TypeError("read() returned %s, which has no __arrow_c_stream__" % type(data).__name__)
            held = getattr(self._source, "held", None)
            nbytes = int(held(unit, members)) if held else 0
            if not 0 <= nbytes < 1 << 62:
                raise ValueError("held() returned %d" % nbytes)
            return 0, export(), nbytes
        except BaseException as error:  # no exception may reach a thread of the loader
            return _failure(error)


def _failure(error: BaseException) -> Tuple[int, str]:
    text = " ".join(str(error).split()).encode(errors="backslashreplace").decode()
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        why = error.strerror.encode(errors="backslashreplace").decode() if isinstance(error.strerror, str) else ""
        return error.errno, why or text
    code = errno.ENOMEM if isinstance(error, MemoryError) else errno.EBADMSG
    return code, "%s: %s" % (type(error).__name__, text)


# -- Parquet ----------------------------------------------------------------------------------------------


class _File(NamedTuple):
    path: str
    size: int
    mtime_ns: int
    rows: Tuple[int, ...]  # of each row group
    ranges: Tuple[int, ...]  # where each row group begins and ends in the file


def _import() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files are read with pyarrow, which this Python does not have (%s): %s -m pip install pyarrow"
            % (error, sys.executable)) from None
    if not hasattr(pyarrow.RecordBatchReader, "__arrow_c_stream__"):
        raise ImportError("Parquet files are read with pyarrow 14 or later, not %s: %s -m pip install -U pyarrow"
                          % (pyarrow.__version__, sys.executable))
    return pyarrow


class Parquet(Source):
    """The rows of Parquet files. A row group is a shard, named PATH#NUMBER. Loader() makes this source itself if the
    names of its shards end in .parquet; pass it as source=penstock.Parquet() for files with other names."""

    files = True

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the footers:
        self._parsed: "collections.OrderedDict[str, Any]" = collections.OrderedDict()
        self._files: Dict[str, _File] = {}
        self._index_dir: Optional[str] = None
        self._arrow: Any = None

    def __reduce__(self) -> Any:
        return Parquet, ()

    def open(self, files: Sequence[str], index_dir: Optional[Path]) -> Dict[str, List[str]]:
        """Reads the footers of the files; returns the units of each."""
        self._arrow = _import()
        self._index_dir = None if index_dir is None else os.fspath(index_dir)
        if self._index_dir:
            os.makedirs(self._index_dir, exist_ok=True)
        new = [path for path in dict.fromkeys(files) if path not in self._files]
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            for file in pool.map(self._look, new):
                self._files[file.path] = file
        return {path: ["%s#%d" % (path, i) for i, n in enumerate(self._files[path].rows) if n] for path in files}

    def ranges(self, units: Sequence[str]) -> bytes:
        """Where the units begin and end in their files."""
        places = array.array("Q")
        for unit in units:
            file, group = self._place(unit)
            places.extend(file.ranges[2 * group : 2 * group + 2])
        return places.tobytes()

    def count(self, unit: str) -> int:
        file, group = self._place(unit)
        return file.rows[group]

    def read(self, unit: str, members: Sequence[str], row: int) -> Any:
        file, group = self._place(unit)
        columns, nbytes = self._columns(file, group, members)
        arrow = self._arrow
        _check_same(file, os.stat(file.path))
        parquet = arrow.parquet.ParquetFile(
            arrow.OSFile(file.path), metadata=self._footer(file), buffer_size=_BUFFER_NBYTES, pre_buffer=False,
            page_checksum_verification=True)
        rows = max(1, min(_BATCH_ROWS, _BATCH_NBYTES * file.rows[group] // max(nbytes, 1)))
        batches = parquet.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)
        batches = _rows_from(batches, row)
        first = next(batches, None)
        if first is None:
            return arrow.schema([]).empty_table()
        return arrow.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))

    def held(self, unit: str, members: Sequence[str]) -> int:
        file, group = self._place(unit)
        columns = self._chunks(file, group, self._columns(file, group, members)[0])
        return sum(_BUFFER_NBYTES + 2 * min(n, _PAGE_NBYTES) for n in columns)

    def _place(self, unit: str) -> Tuple[_File, int]:
        path, _, group = unit.rpartition("#")
        file = self._files[path]
        return file, int(group)

    # -- Columns --------------------------------------------------------------------------------------

    def _columns(self, file: _File, group: int, members: Sequence[str]) -> Tuple[List[str], int]:
        """The paths of the columns that are read, and their decoded bytes in a row group."""
        wanted = set(members)
        paths = [path for path in _paths(self._footer(file).schema.to_arrow_schema(), "", self._arrow) if path.lower() in wanted]
        return paths, sum(self._chunks(file, group, paths))

    def _chunks(self, file: _File, group: int, paths: Sequence[str]) -> List[int]:
        """The decoded bytes of each column chunk of these columns in a row group."""
        chunks = self._footer(file).row_group(group)
        found = (chunks.column(i) for i in range(chunks.num_columns))
        return [c.total_uncompressed_size for c in found
                if any(c.path_in_schema == path or c.path_in_schema.startswith(path + ".") for path in paths)]

    # -- Footers --------------------------------------------------------------------------------------

    def _look(self, path: str) -> _File:
        try:
            stat = os.stat(path)
            footer = self._footer_bytes(path, stat)
        except OSError as error:
            if isinstance(error, errors.Error):
                raise
            raise errors.made(error.errno or errno.EIO, "%s: cannot read: %s" % (path, error.strerror), _CAUSE_SHARD, path,
                              None, 0) from error
        parsed = self._parse(path, footer)
        self._keep(path, parsed)
        groups = [parsed.row_group(i) for i in range(parsed.num_row_groups)]
        return _File(path, stat.st_size, stat.st_mtime_ns, tuple(group.num_rows for group in groups),
                     tuple(at for group in groups for at in _range_of(group, stat.st_size)))

    def _keep(self, path: str, parsed: Any) -> None:
        with self._lock:
            self._parsed[path] = parsed
            self._parsed.move_to_end(path)
            if len(self._parsed) > _FOOTERS_KEPT:
                self._parsed.popitem(last=False)

    def _footer(self, file: _File) -> Any:
        """The parsed footer of a file that must not have changed."""
        with self._lock:
            parsed = self._parsed.get(file.path)
        if parsed is None:
            stat = os.stat(file.path)
            _check_same(file, stat)
            parsed = self._parse(file.path, self._footer_bytes(file.path, stat))
        self._keep(file.path, parsed)
        return parsed

    def _parse(self, path: str, footer: bytes) -> Any:
        try:
            return self._arrow.parquet.read_metadata(self._arrow.BufferReader(_MAGIC + footer))
        except (self._arrow.ArrowException, OSError) as error:
            raise _damaged(path, " ".join(str(error).split())) from error

    def _footer_bytes(self, path: str, stat: os.stat_result) -> bytes:
        """The end of the file from the footer on, from the index directory if it was read before."""
        kept = None
        if self._index_dir:
            # the last two folders, since a mount's own path may differ from run to run
            version = "%s\0%d\0%d" % ("/".join(os.path.abspath(path).split("/")[-3:]), stat.st_size, stat.st_mtime_ns)
            name = hashlib.sha256(version.encode(errors="surrogateescape")).hexdigest()[:32]
            kept = os.path.join(self._index_dir, "%s.%s.footer" % (os.path.basename(path)[:100], name))
            try:
                with open(kept, "rb") as file:
                    footer = file.read()
                if len(footer) == _footer_nbytes(path, footer, stat.st_size):
                    return footer
            except (OSError, ValueError):
                pass
        footer = _footer_read(path, stat.st_size)
        if kept:
            part = "%s.tmp-%d-%d" % (kept, os.getpid(), threading.get_ident())
            try:
                with open(part, "wb") as file:
                    file.write(footer)
                os.replace(part, kept)
            except OSError as error:
                raise errors.ConfigError("index_dir: %s: cannot write: %s" % (kept, os.strerror(error.errno or 0))) from error
        return footer


def _range_of(group: Any, size: int) -> Tuple[int, int]:
    chunks = [group.column(i) for i in range(group.num_columns)]
    begins = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in chunks]
    begin = min(max(0, min(begins, default=0)), size)
    end = max((b + c.total_compressed_size for b, c in zip(begins, chunks)), default=0)
    return begin, min(max(begin, end), size)


def _check_same(file: _File, stat: os.stat_result) -> None:
    if (stat.st_size, stat.st_mtime_ns) != (file.size, file.mtime_ns):
        raise OSError(errno.ESTALE, "the file was replaced since the loader was opened")


def _damaged(path: str, text: str) -> Exception:
    return errors.made(errno.EBADMSG, "%s: cannot read its footer: %s" % (path, text), _CAUSE_SHARD, path, None, 0)


def _footer_nbytes(path: str, end: bytes, size: int) -> int:
    """The bytes from the footer on of a file that ends like this."""
    if end[-4:] == b"PARE":
        raise _damaged(path, "its footer is encrypted")
    if len(end) < _TAIL or end[-4:] != _MAGIC:
        raise _damaged(path, "it does not end with PAR1: it is cut off, or another kind of file")
    nbytes = int.from_bytes(end[-8:-4], "little") + _TAIL
    if nbytes + len(_MAGIC) > size:
        raise _damaged(path, "a footer of %d bytes in a file of %d" % (nbytes, size))
    return nbytes


def _footer_read(path: str, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = _pread(fd, min(size, _FOOTER_FIRST), max(0, size - _FOOTER_FIRST))
        nbytes = _footer_nbytes(path, end, size)
        if nbytes > len(end):
            end = _pread(fd, nbytes - len(end), size - nbytes) + end
        return end[-nbytes:]
    finally:
        os.close(fd)


def _pread(fd: int, nbytes: int, offset: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        more = os.pread(fd, nbytes - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _paths(fields: Any, prefix: str, arrow: Any) -> Iterator[str]:
    """The names of columns, and of columns inside structs with dots."""
    for field in fields:
        if arrow.types.is_struct(field.type):
            yield from _paths([field.type.field(i) for i in range(field.type.num_fields)], prefix + field.name + ".", arrow)
        else:
            yield prefix + field.name


def _rows_from(batches: Iterator[Any], row: int) -> Iterator[Any]:
    for batch in batches:
        if row < batch.num_rows:
            yield batch.slice(row) if row else batch
        row = max(0, row - batch.num_rows)


# -- The loader's shards ------------------------------------------------------------------------------------


def is_parquet(shards: Sequence[Any]) -> bool:
    """True if the names of shards end in .parquet; names of both kinds are refused."""
    parts = [part for name in shards if isinstance(name, (str, bytes, os.PathLike)) for part in os.fsdecode(name).split("::")]
    found = [re.search(r"\.parquet\}?$", re.split("[?#]", part, maxsplit=1)[0] if "://" in part else part, re.IGNORECASE) for part in parts]
    if any(found) and not all(found):
        raise errors.ConfigError("Parquet files and other shards cannot be in one loader: %r and %r" % (
            parts[found.index(next(filter(None, found)))], parts[found.index(None)]))
    return bool(parts) and all(found)


def check(source: Any) -> Source:
    """The source, if it is one."""
    if all(callable(getattr(source, name, None)) for name in ("count", "read")) and not isinstance(source, (str, list, tuple)):
        found: Source = source
        return found
    if hasattr(source, "__iter__") or hasattr(source, "__next__"):
        raise TypeError("source: " + _NO_ITERABLES)
    raise TypeError("source: a penstock.Source with count() and read(), or a word, is needed, not %r" % (source,))


def _below(folder: str) -> List[str]:
    found = [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names if name.lower().endswith(".parquet")]
    return sorted(found, key=os.fsencode)


def units(source: Source, paths: Sequence[Any], index_dir: Optional[Path]) -> List[str]:
    """The units of each string of shards, a line for each, as libpenstock takes them."""
    if not isinstance(source, Parquet):
        sets = [[path] if isinstance(path, (str, os.PathLike)) else list(path) for path in paths]
        for unit in (unit for one in sets for unit in one):
            if not os.fspath(unit) or "\n" in os.fspath(unit):
                raise errors.ConfigError("a unit's name must not be empty or have line ends: %r" % (unit,))
        return ["\n".join(map(os.fspath, one)) for one in sets]
    files: List[List[str]] = []
    for path in paths:
        one: List[str] = []
        for part in os.fsdecode(path).split("::"):
            one += _below(part) if os.path.isdir(part) else _penstock.shards_expand(part)
        for file in one:
            if "\n" in file:
                raise errors.ConfigError("a Parquet file's name must not have line ends: %r" % (file,))
        if not one:
            raise errors.ConfigError("%s: no Parquet file is in it" % os.fsdecode(path))
        files.append(one)
    groups = source.open([file for one in files for file in one], index_dir)
    return ["\n".join(unit for file in one for unit in groups[file]) for one in files]
