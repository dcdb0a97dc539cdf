"""Encrypted disks (LUKS2, LUKS1) opened, created and served, without root.

    import cryptline

    with cryptline.open("disk.img", passphrase="secret", readonly=True) as disk:
        disk.seek(4096)
        disk.read(512)
"""

import contextlib
import errno
import io
import json
import os
import shutil
import socket as sockets
import stat
import tempfile
import threading
import typing
import urllib.parse
import weakref

from . import _cryptline
from ._cryptline import Error, WrongKey, __version__

__all__ = [
    "Disk", "Error", "Extent", "Keys", "Server", "WrongKey", "copy", "create", "info", "keys", "open", "serve",
]


class Extent(typing.NamedTuple):
    """A run of bytes in one state of allocation."""

    offset: int
    length: int
    hole: bool
    zero: bool


class Disk(io.RawIOBase):
    """The decrypted disk as a file. pread() and pwrite() may be called by several threads; what uses the position is
    one thread's at a time."""

    def __init__(self, disk):
        self._disk = disk
        self._position = 0
        self._alone = threading.Lock()

    # The file.

    def readable(self):
        self._disk.size()
        return True

    def writable(self):
        return not self._disk.read_only()

    def seekable(self):
        self._disk.size()
        return True

    def seek(self, offset, whence=os.SEEK_SET, /):
        with self._alone:
            base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._disk.size()}
            if whence not in base:
                raise ValueError("whence is one of SEEK_SET, SEEK_CUR and SEEK_END")
            position = base[whence] + offset
            if position < 0:
                raise ValueError("the position would be negative")
            self._position = position
            return position

    def tell(self):
        self._disk.size()
        return self._position

    def readinto(self, buffer, /):
        with self._alone:
            count = self._disk.readinto(buffer, self._position)
            self._position += count
            return count

    def read(self, size=-1, /):
        if size is None or size < 0:
            return self.readall()
        with self._alone:
            data = self._disk.pread(size, self._position)
            self._position += len(data)
            return data

    def readall(self):
        with self._alone:
            left = max(self._disk.size() - self._position, 0)
            data = self._disk.pread(left, self._position)
            self._position += len(data)
            return data

    def write(self, data, /):
        with self._alone:
            size = self._disk.size()
            view = memoryview(data).cast("B")[: max(size - self._position, 0)]
            if not view and len(memoryview(data)):
                raise Error(28, "the end of the disk is reached")
            count = self._disk.pwrite(view, self._position, False)
            self._position += count
            return count

    def flush(self):
        """Makes everything durable that was written."""
        if self.closed:
            raise ValueError("I/O operation on closed disk")
        if self.writable():
            self._disk.flush()

    def close(self):
        if not self.closed:
            try:
                super().close()
            finally:
                self._disk.close()

    # The disk.

    def pread(self, size, offset):
        """`size` bytes from `offset` on; fewer where the disk ends. The position stays."""
        return self._disk.pread(size, offset)

    def pwrite(self, data, offset, *, durable=False):
        """Writes all of `data` at `offset`; durable on return where asked. The position stays."""
        return self._disk.pwrite(data, offset, durable)

    def discard(self, offset, length):
        """Says that a range is no longer needed. What it holds is then unspecified."""
        self._disk.discard(offset, length)

    def zero(self, offset, length):
        """Makes a range read as zeros."""
        self._disk.zero(offset, length)

    def extents(self, offset=0):
        """What is known of the allocation from `offset` on, run by run."""
        while (found := self._disk.extent(offset)) is not None:
            yield Extent(offset, *found)
            offset += found[0]

    @property
    def size(self):
        """Bytes of the decrypted disk."""
        return self._disk.size()

    @property
    def info(self):
        """What was opened, and what the LUKS header said then: a dictionary."""
        said = json.loads(self._disk.header) if self._disk.header else {}
        opened = json.loads(self._disk.info())
        return {**said, **opened, "warnings": opened["warnings"]}

    def __repr__(self):
        return "<cryptline.Disk{}>".format(" (closed)" if self.closed else "")


def _place(target, partition, offset, length):
    """What a function below takes: a target, and for a file object which part of it is meant."""
    given = {"partition": partition, "offset": offset, "length": length}
    window = urllib.parse.urlencode(
        {key: str(value) for key, value in given.items() if value is not None}, quote_via=urllib.parse.quote)
    if hasattr(target, "read"):
        return {"target": target, "window": window or None}
    name = os.fsdecode(target)
    if window:
        name += ("&" if "?" in name and name.startswith(("nbd:", "nbd+unix:", "nbds:", "nbds+unix:")) else "?") + window
    return {"target": name, "window": None}


def _path(path):
    return None if path is None else os.fsdecode(path)


def _words(words):
    return [words] if isinstance(words, str) else list(words)


def open(target, *, passphrase=None, volume_key=None, key_file=None, key_slot=None, header=None, readonly=False,
         discards=False, shared=False, direct=False, partition=None, target_partition=None, offset=None, length=None,
         time_budget=None, accept_cipher=()):
    """Opens a volume: at a path, at what else names a target ("ram:1G", "nbd://...", "disk.img?partition=2"), or on a
    file object with seek() and read().

    `target_partition`, or `offset` and `length` in bytes, say which part of the target the volume is; `partition` is one of
    the decrypted disk. `direct` bypasses the page cache where that is possible: for many large transfers, and for disks with zones.
    `time_budget` is what deriving keys may cost, in seconds: a header can ask for anything. `accept_cipher` is a cipher of
    the header, or several, that is believed though no key slot vouches for it: without that, the disk can only be read, or
    is refused.
    """
    return Disk(_cryptline.open(
        **_place(target, target_partition, offset, length), passphrase=passphrase, volume_key=volume_key, key_file=_path(key_file), key_slot=key_slot,
        header=_path(header), readonly=readonly, discards=discards, shared=shared, direct=direct,
        partition=None if partition is None else str(partition),
        time_budget=time_budget, accept_cipher=_words(accept_cipher),
    ))


def create(target, size=None, *, passphrase, version=2, label=None, cipher=None, key_bits=None, sector_size=None,
           uuid=None, replace=False, preallocate=False, source=None, kdf=None, iterations=None, memory_kib=None,
           threads=None, kdf_time=None, accept_cipher=()):
    """Makes a volume and opens it. `size` is that of the new file, header included; `source` names what to fill it with,
    and makes the size as large as that takes. A broken cipher is made only if `accept_cipher` names it."""
    _cryptline.create(
        target if hasattr(target, "read") else os.fsdecode(target), size=size, passphrase=passphrase, version=version, label=label, cipher=cipher, key_bits=key_bits,
        sector_size=sector_size, uuid=uuid, replace=replace, preallocate=preallocate, source=_path(source),
        cost=(kdf, iterations, memory_kib, threads, kdf_time), accept_cipher=_words(accept_cipher),
    )
    return open(target, passphrase=passphrase, accept_cipher=accept_cipher)


def copy(disk, target, *, verify=False, replace=False):
    """Writes the decrypted disk to a new file, or to a device: by all cores, and durable before a file has its name.
    How many bytes."""
    return _cryptline.copy(disk._disk, os.fsdecode(target), verify=verify, replace=replace)


def info(target, *, header=None, target_partition=None, offset=None, length=None):
    """What a LUKS header says: a dictionary. No key is needed. Of a disk with a partition table it is the `partitions`,
    each with `number`, `offset`, `length`, `type`, `label`, `uuid`, `luks` if a LUKS header is there, and
    `contents`, what else is known to be there or None."""
    return json.loads(_cryptline.inspect(**_place(target, target_partition, offset, length), header=_path(header), partitions=True))


class Keys:
    """The key slots of a volume. What opens it is kept until the end of the `with` block."""

    def __init__(self, place, way, header, time_budget, accept_cipher):
        self._place = place
        self._common = {**way, "header": header, "time_budget": time_budget, "accept_cipher": accept_cipher}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._common = None

    def __iter__(self):
        """The key slots, each a dictionary."""
        said = _cryptline.inspect(**self._place, header=self._given()["header"], partitions=False)
        return iter(json.loads(said)["keyslots"])

    def add(self, new_passphrase, *, slot=None, kdf=None, iterations=None, memory_kib=None, threads=None,
            kdf_time=None):
        """Adds a passphrase; the number of its key slot."""
        return self._edit("add", new_passphrase, slot, False, (kdf, iterations, memory_kib, threads, kdf_time))

    def change(self, new_passphrase, *, kdf=None, iterations=None, memory_kib=None, threads=None, kdf_time=None):
        """Puts a new passphrase in the place of the one that was given, which it takes as its own from then on."""
        slot = self._edit("change", new_passphrase, None, False, (kdf, iterations, memory_kib, threads, kdf_time))
        self._common.update(passphrase=new_passphrase, volume_key=None, key_file=None)
        return slot

    def remove(self, slot=None, *, last=False):
        """Removes a key slot, where the given key opens another; without a number, the one that it opens. The last one
        is kept without `last`."""
        return self._edit("remove", None, slot, last, (None,) * 5)

    def _edit(self, what, new_passphrase, slot, last, cost):
        return _cryptline.edit(what, **self._place, **self._given(), new_passphrase=new_passphrase, slot=slot, last=last,
                               cost=cost)

    def _given(self):
        if self._common is None:
            raise ValueError("the keys were used outside of their `with` block")
        return self._common


def keys(target, *, passphrase=None, volume_key=None, key_file=None, header=None, target_partition=None, offset=None,
         length=None, time_budget=None, accept_cipher=()):
    """The key slots of a volume, to be listed and changed."""
    way = {"passphrase": passphrase, "volume_key": volume_key, "key_file": _path(key_file)}
    if sum(value is not None for value in way.values()) > 1:
        raise ValueError("use one of passphrase, volume_key and key_file")
    return Keys(_place(target, target_partition, offset, length), way, _path(header), time_budget, _words(accept_cipher))


class Server:
    """A disk that is served over NBD until stop(), or the end of the `with` block. `uri` is for its clients.

    One that is forgotten, or that runs when the program ends, is stopped, too; what fails then is only printed."""

    def __init__(self, server, uri, place, folder, disk):
        self.uri = uri
        # Before the interpreter ends, since no file object can be flushed later.
        self._end = weakref.finalize(self, _end, server, place, folder, disk, os.getpid())

    def stop(self):
        """Lets clients' requests end and makes everything durable; raises where that is not known."""
        self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def _end(server, place, folder, disk, process):
    # A forked child has a copy of what is its parent's.
    if os.getpid() != process:
        return
    try:
        server.stop()
    finally:
        _remove(place, folder)
        if disk:
            disk.close()


def _remove(place, folder):
    """Removes the name of a socket, unless it is another's by now, and the folder that was made for it."""
    if place:
        path, identity = place
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            if (found.st_dev, found.st_ino) == identity:
                os.unlink(path)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _listen(path):
    """A socket that listens at `path`, and what to remove in the end. Only its owner can connect, whatever the umask."""
    listening = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    place = None
    try:
        # Linux gives these to the file, less what the umask forbids: it is private before it has a name.
        os.fchmod(listening.fileno(), 0o600)
        listening.bind(path)
        # Never what somebody else puts there.
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
                raise FileExistsError(errno.EEXIST, "somebody else has put something in the place of the socket", path)
            place = os.path.abspath(path), (found.st_dev, found.st_ino)
            if stat.S_IMODE(found.st_mode) != 0o600:
                os.chmod(f"/proc/self/fd/{descriptor}", 0o600)
        finally:
            os.close(descriptor)
        listening.listen(16)
    except BaseException:
        listening.close()
        _remove(place, None)
        raise
    return listening, place


def serve(target, *, socket=None, name="", **how):
    """Serves a disk over NBD: one that is open, or what open() would open with the same arguments.

    `socket` is a path for a Unix socket, which only this user can connect to and which is removed in the end, or a Unix
    or TCP socket that listens; without it, there is a new one for this user alone."""
    disk = target if isinstance(target, Disk) else open(target, **how)
    own = None if disk is target else disk
    folder = listening = place = None
    try:
        if isinstance(target, Disk) and how:
            raise TypeError("a disk that is open takes no options")
        if socket is None:
            folder = tempfile.mkdtemp(prefix="cryptline-")
            socket = os.path.join(folder, "nbd.sock")
        if hasattr(socket, "fileno"):
            uri = None
            server = _cryptline.serve(disk._disk, socket.fileno(), name)
        else:
            listening, place = _listen(os.fspath(socket))
            uri = "nbd+unix:///{}?socket={}".format(
                urllib.parse.quote(name, safe=""), urllib.parse.quote(os.fspath(socket)))
            server = _cryptline.serve(disk._disk, listening.fileno(), name)
    except BaseException:
        if own:
            own.close()
        _remove(place, folder)
        raise
    finally:
        if listening:
            listening.close()
    return Server(server, uri, place, folder, own)
