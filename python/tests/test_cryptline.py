"""The Python module over images made by cryptsetup, and beside other readers of LUKS. `cargo xtask python` runs it."""

import errno
import hashlib
import importlib
import io
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import cryptline

PHRASE = "pass phrase"
CHEAP = {"kdf": "pbkdf2", "iterations": 1000}
MIB = 1 << 20
PATTERN = hashlib.shake_256(b"cryptline").digest(2 * MIB)


def program(name):
    """A program that the tests need; outside of CI they do without."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        if os.environ.get("CI") == "true":
            raise AssertionError(f"{name} is not installed")
        raise unittest.SkipTest(f"{name} is not installed")
    return path


def run(*words, **how):
    return subprocess.run(words, check=True, capture_output=True, timeout=120, **how)


def listens(path):
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def image(self, kind="luks2"):
        """A volume of cryptsetup's, with the pattern at its start."""
        path = self.folder / f"{kind}.img"
        with open(path, "wb") as file:
            file.truncate(24 * MIB)
        run(program("cryptsetup"), "luksFormat", "--batch-mode", "--key-file=-", "--type", kind, "--pbkdf=pbkdf2",
            "--pbkdf-force-iterations=1000", path, input=PHRASE.encode())
        with cryptline.open(path, passphrase=PHRASE) as disk:
            disk.write(PATTERN)
        return path

    def made(self):
        """A volume of our own."""
        path = self.folder / "disk.img"
        cryptline.create(path, 20 * MIB, passphrase=PHRASE, **CHEAP).close()
        return path


class Reading(WithFolder):
    def test_what_is_in_images_of_cryptsetups_is_read_as_from_a_file(self):
        for kind in ("luks1", "luks2"):
            with self.subTest(kind), cryptline.open(self.image(kind), passphrase=PHRASE, readonly=True) as disk:
                self.assertTrue(disk.readable() and disk.seekable() and not disk.writable())
                self.assertEqual(disk.read(10), PATTERN[:10])
                self.assertEqual(disk.seek(-1, os.SEEK_CUR), 9)
                buffer = bytearray(5000)
                self.assertEqual(disk.readinto(buffer), 5000)
                self.assertEqual(buffer, PATTERN[9:5009])
                self.assertEqual(disk.tell(), 5009)
                self.assertEqual(disk.pread(MIB, 12345), PATTERN[12345:12345 + MIB])
                self.assertEqual(disk.tell(), 5009)
                self.assertEqual(disk.seek(-7, os.SEEK_END), disk.size - 7)
                self.assertEqual((len(disk.read()), disk.read(1), disk.readinto(buffer)), (7, b"", 0))
                self.assertEqual(disk.pread(10, disk.size + 5), b"")
                disk.seek(0)
                buffered = io.BufferedReader(disk)
                self.assertEqual(buffered.read(100) + buffered.read(MIB), PATTERN[:MIB + 100])
                buffered.detach()
                self.assertRaises(OSError, disk.pwrite, b"x", 0)

    def test_other_readers_of_luks1_find_what_was_written(self):
        path = self.image("luks1")
        with cryptline.open(path, passphrase=PHRASE) as disk:
            disk.pwrite(b"written in between", 4090, durable=True)
            size = disk.size
        clear = self.folder / "clear.raw"
        secret = self.folder / "secret"
        secret.write_text(PHRASE)
        run(program("qemu-img"), "convert", "-O", "raw", "--object", f"secret,id=key,file={secret}",
            "--image-opts", f"driver=luks,key-secret=key,file.filename={path}", clear)
        found = clear.read_bytes()
        self.assertEqual(len(found), size)
        self.assertEqual(found[:len(PATTERN)], PATTERN[:4090] + b"written in between" + PATTERN[4108:])

    def reader(self, name):
        """Another reader of LUKS, which only an environment of its own has."""
        try:
            return importlib.import_module(name)
        except ImportError:
            if os.environ.get("OTHER_READERS") == "required":
                raise
            self.skipTest(f"{name} is not installed")

    def test_pyluksde_reads_the_same(self):
        pyluksde = self.reader("pyluksde")
        path = self.image("luks1")
        volume = pyluksde.volume()
        volume.set_password(PHRASE)
        volume.open(str(path))
        with cryptline.open(path, passphrase=PHRASE, readonly=True) as disk:
            self.assertEqual(volume.get_size(), disk.size)
            self.assertEqual(volume.read_buffer_at_offset(MIB, 512), disk.pread(MIB, 512))

    def test_dissect_reads_the_same(self):
        dissect = self.reader("dissect.fve.luks")
        for kind in ("luks1", "luks2"):
            path = self.image(kind)
            with open(path, "rb") as file, cryptline.open(path, passphrase=PHRASE, readonly=True) as disk:
                luks = dissect.LUKS(file)
                luks.unlock_with_passphrase(PHRASE)
                self.assertEqual(luks.open().read(65536), disk.pread(65536, 0))

    def test_info_and_extents_say_what_there_is(self):
        path = self.image()
        with cryptline.open(path, passphrase=PHRASE, readonly=True) as disk:
            info = disk.info
            self.assertEqual((info["kind"], info["cipher"], info["size"]), ("LUKS2", "aes-xts-plain64", 8 * MIB))
            self.assertEqual([slot["id"] for slot in info["keyslots"]], [0])
            extents = list(disk.extents())
            self.assertEqual(extents[0].offset, 0)
            ends = [extent.offset + extent.length for extent in extents]
            self.assertEqual([extent.offset for extent in extents[1:]] + [disk.size], ends)
        self.assertEqual(cryptline.info(path)["uuid"], info["uuid"])


class Writing(WithFolder):
    def test_what_is_written_by_many_threads_is_there(self):
        path = self.made()
        with cryptline.open(path, passphrase=PHRASE) as disk:
            disk.zero(0, 64 << 10)

            def write(own):
                for at in range(own, 1600, 16):
                    self.assertEqual(disk.pwrite(bytes([own + 1]), at), 1)

            threads = [threading.Thread(target=write, args=(own,)) for own in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            disk.flush()
        with cryptline.open(path, passphrase=PHRASE) as disk:
            self.assertEqual(disk.read(1600), bytes(range(1, 17)) * 100)
            self.assertEqual(disk.read(100), bytes(100))

    def test_disk_that_others_write_to_is_read_at_any_offset_and_written_in_blocks(self):
        path = self.folder / "large-sectors.img"
        cryptline.create(path, 20 * MIB, passphrase=PHRASE, sector_size=4096, **CHEAP).close()
        with cryptline.open(path, passphrase=PHRASE, shared=True) as disk:
            disk.write(PATTERN)
            for offset, length in ((4093, 16), (1, 1), (MIB - 5, MIB - 7), (4096, 10)):
                with self.subTest(offset=offset):
                    self.assertEqual(disk.pread(length, offset), PATTERN[offset:offset + length])
            self.assertEqual(len(disk.pread(16, disk.size - 3)), 3)
            with self.assertRaises(cryptline.Error) as caught:
                disk.pwrite(b"a few bytes", 4093)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
            self.assertEqual(disk.pwrite(PATTERN[:4096], 8192), 4096)

    def test_disk_ends_where_it_ends(self):
        with cryptline.open(self.made(), passphrase=PHRASE) as disk:
            disk.seek(-3, os.SEEK_END)
            self.assertEqual(disk.write(b"12345"), 3)
            with self.assertRaises(OSError) as caught:
                disk.write(b"45")
            self.assertEqual(caught.exception.errno, errno.ENOSPC)
            self.assertEqual(disk.write(b""), 0)
            self.assertEqual(disk.pread(3, disk.size - 3), b"123")
            with self.assertRaises(cryptline.Error) as caught:
                disk.pwrite(b"12345", disk.size - 3)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
            self.assertRaises(OverflowError, disk.pread, 1, -1)
            with self.assertRaises(cryptline.Error) as caught:
                disk.discard(0, 4096)
            self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)

    def test_closed_disk_is_closed(self):
        path = self.made()
        disk = cryptline.open(path, passphrase=PHRASE)
        with self.assertRaises(cryptline.Error) as caught:
            cryptline.open(path, passphrase=PHRASE)
        self.assertEqual(caught.exception.errno, errno.EBUSY)
        disk.close()
        disk.close()
        for call in (disk.read, disk.tell, disk.flush, disk.readable, lambda: disk.size, lambda: disk.write(b"x")):
            self.assertRaises(ValueError, call)
        cryptline.open(path, passphrase=PHRASE).close()

    def test_buffers_that_cannot_be_used_are_refused(self):
        with cryptline.open(self.made(), passphrase=PHRASE) as disk:
            self.assertRaises((TypeError, BufferError), disk.readinto, b"1234")
            self.assertRaises((TypeError, BufferError), disk.pwrite, "text", 0)
            self.assertRaises((TypeError, BufferError), disk.readinto, memoryview(bytearray(64))[::2])


class SplitImage:
    """A file object over several files, as forensics has it."""

    def __init__(self, parts):
        self.parts, self.position = parts, 0

    def seek(self, offset, whence=0):
        size = sum(part.stat().st_size for part in self.parts)
        self.position = offset + (0, self.position, size)[whence]
        return self.position

    def read(self, count):
        start = 0
        for part in self.parts:
            size = part.stat().st_size
            if start <= self.position < start + size:
                with open(part, "rb") as file:
                    file.seek(self.position - start)
                    data = file.read(count)
                self.position += len(data)
                return data
            start += size
        return b""


class FileObjects(WithFolder):
    def test_split_image_is_read_without_being_joined(self):
        whole = self.image().read_bytes()
        parts = []
        for number, at in enumerate(range(0, len(whole), 5_000_000)):
            parts.append(self.folder / f"image.{number:03}")
            parts[-1].write_bytes(whole[at:at + 5_000_000])
        with cryptline.open(SplitImage(parts), passphrase=PHRASE) as disk:
            self.assertFalse(disk.writable())
            self.assertEqual(disk.pread(len(PATTERN), 0), PATTERN)
            self.assertEqual(disk.info["keyslots"][0]["id"], 0)

    def test_image_of_ewfacquire_is_read_by_pyewf(self):
        try:
            pyewf = importlib.import_module("pyewf")
        except ImportError:
            if os.environ.get("CI") == "true" or os.environ.get("OTHER_READERS") == "required":
                raise
            self.skipTest("pyewf is not installed")
        # Its name must have an ending.
        image = self.image()
        run(program("ewfacquire"), "-u", "-q", "-c", "fast", "-S", "1MiB", "-t", self.folder / "case", image)
        handle = pyewf.handle()
        handle.open(pyewf.glob(str(self.folder / "case.E01")))
        self.addCleanup(handle.close)
        self.assertIsNone(handle.seek(0), "what makes it another than a file")
        with cryptline.open(handle, passphrase=PHRASE) as disk:
            self.assertFalse(disk.writable())
            self.assertEqual(disk.pread(len(PATTERN), 0), PATTERN)
        self.assertRaises(cryptline.Error, cryptline.open, handle, passphrase="wrong")

    def test_volume_in_a_partition_is_found_in_a_file_object_as_in_a_file(self):
        image = self.image().read_bytes()
        whole = self.folder / "whole disk?.img"
        whole.write_bytes(bytes(MIB) + image + bytes(2 * MIB))
        layout = f"label: gpt\nstart=2048, size={len(image) // 512}, name=\"a & b\"\nstart={2048 + len(image) // 512}\n"
        subprocess.run([program("sfdisk"), "-q", whole], input=layout.encode(), check=True)
        for target in (whole, io.BytesIO(whole.read_bytes())):
            with self.subTest(type(target)):
                found = cryptline.info(target)
                self.assertEqual((found["kind"], found["device_size"]), ("gpt", whole.stat().st_size))
                first, second = found["partitions"]
                self.assertEqual((first["number"], first["offset"], first["length"]), (1, MIB, len(image)))
                self.assertEqual((first["label"], first["luks"], second["luks"]), ("a & b", True, False))
                self.assertIsNone(first["contents"])
                self.assertIn("zeros", second["contents"])
                parts = {"target_partition": 1}, {"target_partition": "a & b"}, {"target_partition": first["uuid"]}, {
                    "offset": MIB, "length": len(image)}
                for part in parts:
                    self.assertEqual(cryptline.info(target, **part)["kind"], "LUKS2")
                    with cryptline.open(target, passphrase=PHRASE, **part) as disk:
                        self.assertEqual(disk.pread(len(PATTERN), 0), PATTERN)
                        disk.pwrite(b"12", 1)
                    with cryptline.open(target, passphrase=PHRASE, readonly=True, **part) as disk:
                        self.assertEqual(disk.pread(3, 0), PATTERN[:1] + b"12")
                    with cryptline.open(target, passphrase=PHRASE, **part) as disk:
                        disk.pwrite(PATTERN, 0)
                    with cryptline.keys(target, passphrase=PHRASE, **part) as keys:
                        self.assertEqual([slot["id"] for slot in keys], [0])
                for wrong in ({"target_partition": 3}, {"target_partition": 2}, {"offset": whole.stat().st_size}):
                    with self.assertRaises(cryptline.Error):
                        cryptline.open(target, passphrase=PHRASE, **wrong)
                for wrong in ({"target_partition": 1, "offset": 0}, {"offset": 5}, {"length": -1}):
                    with self.assertRaises((ValueError, cryptline.Error)):
                        cryptline.open(target, passphrase=PHRASE, **wrong)
                with cryptline.keys(target, passphrase=PHRASE) as keys, self.assertRaises(cryptline.Error):
                    list(keys)
        # Its first table is broken, and the one at the end is used.
        broken = bytearray(whole.read_bytes())
        broken[512 + 8] ^= 1
        with self.assertWarnsRegex(UserWarning, "partition table"):
            cryptline.open(io.BytesIO(broken), passphrase=PHRASE, target_partition=1).close()
        # Nothing outside of the partition was touched.
        data = whole.read_bytes()
        self.assertEqual(data[MIB + len(image):3 * MIB // 2 + len(image)], bytes(MIB // 2))

    def test_size_is_told_by_seek_or_tell(self):
        image = self.image().read_bytes()

        class Silent(io.BytesIO):
            def seek(self, offset, whence=0):
                super().seek(offset, whence)

        class Odd(io.BytesIO):
            end = at = None

            def seek(self, offset, whence=0):
                at = super().seek(offset, whence)
                return self.end if whence == 2 else at if self.at is None else self.at

        with cryptline.open(Silent(image), passphrase=PHRASE) as disk:
            self.assertEqual(disk.pread(len(PATTERN), 0), PATTERN)
            disk.pwrite(b"12", 1)
            self.assertEqual(disk.pread(4, 0), PATTERN[:1] + b"12" + PATTERN[3:4])
        mute = type("Mute", (), {"seek": lambda *_: None, "read": lambda *_: b""})()
        with self.assertRaisesRegex(TypeError, "returns None, and it has no tell"):
            cryptline.open(mute, passphrase=PHRASE)
        for end in ("many", -1, 1.5):
            odd = Odd(image)
            odd.end = end
            with self.subTest(end), self.assertRaisesRegex(ValueError, re.escape(repr(end))):
                cryptline.open(odd, passphrase=PHRASE)
        # The bytes of another place are no bytes of this one.
        odd = Odd(image)
        odd.end = len(image)
        with cryptline.open(odd, passphrase=PHRASE, readonly=True) as disk:
            odd.at = 512
            with self.assertRaises(cryptline.Error) as caught:
                disk.pread(10, 0)
            self.assertRegex(str(caught.exception.__cause__), "goes to 512")

    def test_sync_of_a_file_is_made_once(self):
        # Python's own makes it again where it was interrupted, and a lost write may have been told that way.
        with open(self.image(), "r+b") as file, cryptline.open(file, passphrase=PHRASE) as disk:
            with unittest.mock.patch("os.fsync", side_effect=AssertionError("made by Python")) as repeats:
                disk.pwrite(PATTERN, 0)
                disk.flush()
            self.assertFalse(repeats.called)

    def test_object_that_does_not_say_that_it_is_writable_is_only_read(self):
        image = self.image().read_bytes()
        for without in ("write", "writable"):
            whole = io.BytesIO(image)
            methods = {"seek", "read", "write", "writable"} - {without}
            part = type("Part", (), {name: staticmethod(getattr(whole, name)) for name in methods})()
            with self.subTest(without), cryptline.open(part, passphrase=PHRASE) as disk:
                self.assertFalse(disk.writable())

    def test_volume_is_made_written_and_rekeyed_in_memory(self):
        memory = io.BytesIO(bytes(20 * MIB))
        with cryptline.create(memory, passphrase="first", label="in memory", **CHEAP) as disk:
            disk.write(PATTERN)
            disk.flush()
            self.assertEqual(disk.info["label"], "in memory")
        with cryptline.keys(memory, passphrase="first") as keys:
            keys.change("second", **CHEAP)
        with cryptline.open(memory, passphrase="second") as disk:
            self.assertEqual(disk.read(len(PATTERN)), PATTERN)
        self.assertNotIn(PATTERN[:64], memory.getvalue())

    def test_object_that_lies_or_raises_gives_an_error_and_loses_nothing(self):
        image = self.image().read_bytes()

        class Odd(io.BytesIO):
            trouble = None

            def read(self, count=-1):
                if self.trouble == "raise":
                    raise RuntimeError("the shelf is empty")
                if self.trouble == "short":
                    return b""
                if self.trouble == "long":
                    return bytes(count + 1)
                if self.trouble == "text":
                    return "x" * count
                return super().read(count)

            def write(self, data):
                if self.trouble == "lose":
                    raise OSError(errno.EIO, "lost")
                return super().write(data)

        odd = Odd(image)
        disk = cryptline.open(odd, passphrase=PHRASE)
        for trouble, cause in (("raise", RuntimeError), ("short", ValueError), ("long", ValueError), ("text", TypeError)):
            odd.trouble = trouble
            with self.subTest(trouble), self.assertRaises(cryptline.Error) as caught:
                disk.pread(10, 0)
            self.assertEqual(caught.exception.errno, errno.EIO)
            self.assertIsInstance(caught.exception.__cause__, cause)
        odd.trouble = None
        self.assertEqual(disk.pread(100, 0), PATTERN[:100])
        odd.trouble = "lose"
        self.assertRaises(cryptline.Error, disk.pwrite, bytes(4096), 0)
        odd.trouble = None
        # A write was lost, so no flush can promise anything any more.
        self.assertRaises(cryptline.Error, disk.flush)
        self.assertRaises(cryptline.Error, disk.close)
        self.assertTrue(disk.closed)

        class Vast(io.BytesIO):
            def seek(self, offset, whence=0):
                return 1 << 60 if whence == 2 else super().seek(offset, whence)

        with cryptline.open(Vast(image), passphrase=PHRASE, readonly=True) as disk:
            self.assertEqual(disk.pread(100, 0), PATTERN[:100])
            self.assertRaises(cryptline.Error, disk.pread, 100, disk.size - 100)
        self.assertRaises(TypeError, cryptline.open, type("X", (), {"read": None})())
        for refused in (io.BytesIO(), io.BytesIO(bytes(4096)), io.BytesIO(image[:40_000])):
            self.assertRaises(cryptline.Error, cryptline.open, refused, passphrase=PHRASE)

    def test_interrupts_inside_of_an_object_come_out_as_they_are(self):
        image = self.image().read_bytes()

        class Interrupted(io.BytesIO):
            trouble = None

            def read(self, count=-1):
                if self.trouble:
                    raise self.trouble
                return super().read(count)

            def write(self, data):
                if self.trouble:
                    raise self.trouble
                return super().write(data)

        odd = Interrupted(image)
        with cryptline.open(odd, passphrase=PHRASE, readonly=True) as disk:
            for trouble in (KeyboardInterrupt, SystemExit):
                odd.trouble = trouble
                with self.subTest(trouble):
                    self.assertRaises(trouble, disk.pread, 10, 0)
                    self.assertRaises(trouble, cryptline.open, odd, passphrase=PHRASE)
                    self.assertRaises(trouble, cryptline.info, odd)
            odd.trouble = None
            # What is over is no cause of what comes later.
            self.assertEqual(disk.pread(10, 0), PATTERN[:10])
            with self.assertRaises(cryptline.Error) as caught:
                disk.discard(0, 4096)
            self.assertIsNone(caught.exception.__cause__)
        disk = cryptline.open(odd, passphrase=PHRASE)
        odd.trouble = KeyboardInterrupt
        self.assertRaises(KeyboardInterrupt, disk.pwrite, bytes(4096), 0)
        odd.trouble = None
        # A part of it may be there.
        self.assertRaises(cryptline.Error, disk.flush)
        self.assertRaises(cryptline.Error, disk.close)

    def test_failure_that_was_got_over_is_no_cause(self):
        image = self.image().read_bytes()

        class Late(io.BytesIO):
            fails = True

            def read(self, count=-1):
                if self.fails:
                    self.fails = False
                    raise RuntimeError("at first")
                return super().read(count)

        with self.assertRaises(cryptline.WrongKey) as caught:
            cryptline.open(Late(image), passphrase="wrong")
        self.assertIsNone(caught.exception.__cause__)
        self.assertIn("Try another passphrase, or name a key slot.", str(caught.exception))

    def test_object_that_uses_its_own_volume_gets_an_error_and_does_not_wait_for_itself(self):
        class Inward(io.BytesIO):
            disk = None

            def read(self, count=-1):
                if self.disk:
                    self.disk.pread(10, 0)
                return super().read(count)

        inward = Inward(self.image().read_bytes())
        with cryptline.open(inward, passphrase=PHRASE, readonly=True) as disk:
            inward.disk = disk
            self.assertRaises(cryptline.Error, disk.pread, 10, 0)
            inward.disk = None
            self.assertEqual(disk.pread(10, 0), PATTERN[:10])

    def test_volume_that_its_own_object_flushes_or_drops_can_be_flushed_afterwards(self):
        class Inward(io.BytesIO):
            inside = None

            def read(self, count=-1):
                if self.inside:
                    self.inside()
                return super().read(count)

        inward = Inward(self.image().read_bytes())
        refused = []
        with cryptline.open(inward, passphrase=PHRASE) as disk:
            def flush():
                with self.assertRaises(cryptline.Error) as caught:
                    disk.flush()
                refused.append(caught.exception.errno)

            disk.pwrite(b"kept", 0)
            inward.inside = flush
            # What was flushed there is not what fails here.
            self.assertEqual(disk.pread(4, 0), b"kept")
            inward.inside = None
            self.assertEqual(set(refused), {errno.EDEADLK})
            disk.flush()
            # The end of a disk that is collected there flushes it, too. Its server still has the volume.
            server = cryptline.serve(disk)
            # Another volume is no concern of it.
            with cryptline.open(io.BytesIO(self.image().read_bytes()), passphrase=PHRASE) as other:
                inward.inside = other.flush
                self.assertEqual(disk.pread(4, 0), b"kept")
            inward.inside = disk.__del__
            self.assertEqual(disk.pread(4, 0), b"kept")
            inward.inside = None
            server.stop()

    def test_file_that_is_open_for_appending_is_only_read(self):
        path = self.image()
        before = path.read_bytes()
        for buffering in (0, -1):
            with self.subTest(buffering), open(path, "a+b", buffering) as file:
                with cryptline.open(file, passphrase=PHRASE) as disk:
                    self.assertFalse(disk.writable())
                    self.assertEqual(disk.pread(100, 0), PATTERN[:100])
                    with self.assertRaises(cryptline.Error) as caught:
                        disk.pwrite(bytes(4096), 0)
                    self.assertEqual(caught.exception.errno, errno.EPERM)
                with cryptline.keys(file, passphrase=PHRASE) as keys:
                    self.assertRaises(cryptline.Error, keys.add, "another", **CHEAP)
        self.assertEqual(path.read_bytes(), before)

    def test_other_threads_run_while_one_waits_for_an_object(self):
        image = self.image().read_bytes()
        entered, go_on = threading.Event(), threading.Event()

        class Slow(io.BytesIO):
            is_slow = False

            def read(self, count=-1):
                if self.is_slow:
                    entered.set()
                    go_on.wait(60)
                return super().read(count)

        slow = Slow(image)
        with cryptline.open(slow, passphrase=PHRASE, readonly=True) as disk:
            slow.is_slow = True
            found = []
            threads = [threading.Thread(target=lambda: found.append(disk.pread(10, 0))) for _ in range(2)]
            for thread in threads:
                thread.start()
            self.assertTrue(entered.wait(60))
            # One is in the object and the other waits for it; this one must not.
            go_on.set()
            for thread in threads:
                thread.join()
            self.assertEqual(found, [PATTERN[:10]] * 2)


class Keys(WithFolder):
    def test_wrong_keys_are_told_from_other_failures(self):
        path = self.image()
        for given in ({"passphrase": "wrong"}, {"volume_key": bytes(64)}, {}):
            self.assertRaises((cryptline.WrongKey, cryptline.Error), cryptline.open, path, **given)
        with self.assertRaises(cryptline.WrongKey) as caught:
            cryptline.open(path, passphrase="wrong")
        self.assertEqual(caught.exception.errno, errno.EKEYREJECTED)
        with self.assertRaises(cryptline.Error) as caught:
            cryptline.open(self.folder / "nothing", passphrase="x")
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        self.assertRaises(ValueError, cryptline.open, path, passphrase="x", key_file="y")
        self.assertRaises(ValueError, cryptline.open, path, passphrase="x", time_budget=-1)

    def test_volume_key_and_key_file_open_what_cryptsetup_made(self):
        path = self.image()
        key, phrase = self.folder / "volume.key", self.folder / "phrase"
        phrase.write_text(PHRASE)
        run(program("cryptsetup"), "luksDump", "--batch-mode", "--dump-volume-key", f"--volume-key-file={key}",
            f"--key-file={phrase}", path)
        for given in ({"volume_key": key.read_bytes()}, {"key_file": phrase}, {"passphrase": PHRASE.encode()}):
            with cryptline.open(path, readonly=True, **given) as disk:
                self.assertEqual(disk.read(100), PATTERN[:100])

    def test_key_slots_are_listed_added_changed_and_removed(self):
        path = self.image()

        def opens(phrase):
            tried = subprocess.run([program("cryptsetup"), "open", "--test-passphrase", "--key-file=-", path],
                                   input=phrase.encode(), capture_output=True, timeout=120)
            return tried.returncode == 0

        with cryptline.keys(path, passphrase=PHRASE) as keys:
            self.assertEqual(keys.add("another", slot=5, **CHEAP), 5)
            self.assertEqual([slot["id"] for slot in keys], [0, 5])
            self.assertEqual(keys.change("new", **CHEAP), 0)
            self.assertTrue(opens("another") and opens("new") and not opens(PHRASE))
            self.assertEqual(keys.remove(5), 5)
            self.assertFalse(opens("another"))
            self.assertRaises(cryptline.Error, keys.remove)
            self.assertEqual(keys.remove(last=True), 0)
            self.assertEqual(list(keys), [])
        self.assertRaises(ValueError, keys.add, "x")

    def test_header_that_would_take_for_ever_is_refused_in_time(self):
        path = self.image("luks1")
        header = bytearray(path.read_bytes()[:592])
        # Iterations of the first key slot.
        header[212:216] = struct.pack(">I", 0xFFFF_FFFF)
        with open(path, "r+b") as file:
            file.write(header)
        with self.assertRaises(cryptline.Error) as caught:
            cryptline.open(path, passphrase=PHRASE, time_budget=0.5)
        self.assertNotIsInstance(caught.exception, FileNotFoundError)


class Making(WithFolder):
    def test_cipher_that_nothing_vouches_for_is_accepted_by_name(self):
        path = self.folder / "broken.img"
        how = {"cipher": "aes-xts-null", **CHEAP}
        with self.assertRaises(cryptline.Error):
            cryptline.create(path, 20 * MIB, passphrase=PHRASE, **how)
        cryptline.create(path, 20 * MIB, passphrase=PHRASE, accept_cipher="aes-xts-null", **how).close()
        for other in (), "aes-xts-plain64", ["aes-xts-benbi"]:
            with self.assertRaises(cryptline.Error):
                cryptline.open(path, passphrase=PHRASE, accept_cipher=other)
        with cryptline.open(path, passphrase=PHRASE, accept_cipher=["x", "aes-xts-null"]) as disk:
            self.assertTrue(disk.writable())
        with cryptline.keys(path, passphrase=PHRASE) as keys, self.assertRaises(cryptline.Error):
            keys.add("another", **CHEAP)
        with cryptline.keys(path, passphrase=PHRASE, accept_cipher="aes-xts-null") as keys:
            self.assertEqual(keys.add("another", **CHEAP), 1)

    def test_cryptsetup_takes_what_is_made(self):
        path = self.folder / "new.img"
        how = {"version": 1, "sector_size": None}, {"label": "root", "sector_size": 4096}
        for given in how:
            with cryptline.create(path, 20 * MIB, passphrase=PHRASE, replace=True, **given, **CHEAP) as disk:
                disk.write(b"first")
            run(program("cryptsetup"), "open", "--test-passphrase", "--key-file=-", path, input=PHRASE.encode())
        self.assertIn(b"root", run(program("cryptsetup"), "luksDump", path).stdout)
        with self.assertRaises(cryptline.Error) as caught:
            cryptline.create(path, 20 * MIB, passphrase=PHRASE, **CHEAP)
        self.assertEqual(caught.exception.errno, errno.EEXIST)
        self.assertRaises(cryptline.Error, cryptline.create, self.folder / "x", passphrase=PHRASE)

    def test_disks_are_copied_both_ways(self):
        raw = self.folder / "clear.raw"
        raw.write_bytes(PATTERN)
        path = self.folder / "new.img"
        with cryptline.create(path, passphrase=PHRASE, source=raw, **CHEAP) as disk:
            self.assertEqual(disk.size, len(PATTERN))
            again = self.folder / "again.raw"
            self.assertEqual(cryptline.copy(disk, again, verify=True), len(PATTERN))
            self.assertRaises(cryptline.Error, cryptline.copy, disk, again)
        self.assertEqual(again.read_bytes(), PATTERN)


class Serving(WithFolder):
    def test_clients_get_the_disk_until_the_block_ends(self):
        path = self.image()
        with cryptline.serve(path, passphrase=PHRASE, readonly=True) as server:
            clear = self.folder / "clear.raw"
            run(program("nbdcopy"), server.uri, clear)
            self.assertEqual(clear.read_bytes()[:len(PATTERN)], PATTERN)
            uri = server.uri
        socket_path = uri.split("socket=")[1]
        self.assertFalse(os.path.exists(socket_path))
        with cryptline.open(path, passphrase=PHRASE) as disk, socket.create_server(("127.0.0.1", 0)) as listening:
            with cryptline.serve(disk, socket=listening, name="disk"):
                with socket.create_connection(listening.getsockname()) as client:
                    self.assertEqual(client.recv(8, socket.MSG_WAITALL), b"NBDMAGIC")
            self.assertEqual(disk.pread(10, 0), PATTERN[:10])

    def test_server_that_is_forgotten_ends_and_flushes_its_object(self):
        image = self.image().read_bytes()
        flushes = []

        class Counting(io.BytesIO):
            def flush(self):
                flushes.append(threading.current_thread())
                super().flush()

        for end in ("collected", "dropped by the Rust part alone"):
            with self.subTest(end):
                disk = cryptline.open(Counting(image), passphrase=PHRASE)
                disk.write(b"x")
                flushes.clear()
                if end == "collected":
                    server = cryptline.serve(disk)
                    path = server.uri.split("socket=")[1]
                    del server
                    self.assertFalse(os.path.exists(os.path.dirname(path)))
                else:
                    with socket.create_server(("127.0.0.1", 0)) as listening:
                        server = cryptline._cryptline.serve(disk._disk, listening.fileno(), "")
                        del server
                self.assertTrue(flushes)
                self.assertNotIn(threading.current_thread(), flushes)
                disk.close()

    def test_server_that_runs_at_the_end_of_the_program_is_stopped(self):
        path = self.folder / "nbd.sock"
        text = f"""
import io, cryptline
class Telling(io.BytesIO):
    def flush(self):
        print("flushed")
memory = Telling(bytes(20 << 20))
disk = cryptline.create(memory, passphrase="x", kdf="pbkdf2", iterations=1000)
disk.write(b"x")
print("served")
server = cryptline.serve(disk, socket={str(path)!r})
"""
        said = run(sys.executable, "-W", "error", "-c", text)
        self.assertEqual(said.stderr, b"")
        self.assertIn(b"flushed", said.stdout.partition(b"served")[2])
        self.assertFalse(path.exists())

    def test_server_that_ends_inside_of_its_object_does_not_wait_for_itself(self):
        class Ending(io.BytesIO):
            server = None

            def read(self, count=-1):
                if self.server:
                    server, self.server = self.server, None
                    server.stop()
                return super().read(count)

        ending = Ending(self.image().read_bytes())
        with cryptline.open(ending, passphrase=PHRASE, readonly=True) as disk:
            ending.server = cryptline.serve(disk)
            with self.assertRaises(cryptline.Error) as caught:
                disk.pread(10, 0)
            self.assertIsInstance(caught.exception.__cause__, RuntimeError)
            self.assertEqual(disk.pread(10, 0), PATTERN[:10])

    def test_forked_child_leaves_the_server_to_its_parent(self):
        path = self.folder / "nbd.sock"
        text = f"""
import os, cryptline
server = cryptline.serve({str(self.made())!r}, passphrase={PHRASE!r}, socket={str(path)!r})
if os.fork() == 0:
    server.stop()
    del server
    raise SystemExit
assert os.wait()[1] == 0
assert os.path.exists(server.uri.split("socket=")[1])
import socket
with socket.socket(socket.AF_UNIX) as client:
    client.connect({str(path)!r})
    assert client.recv(8, socket.MSG_WAITALL) == b"NBDMAGIC"
server.stop()
"""
        # Newer versions warn of any fork beside threads.
        run(sys.executable, "-c", text)
        self.assertFalse(path.exists())

    def test_forked_child_lets_an_open_disk_go_in_silence(self):
        text = f"""
import os, cryptline
disk = cryptline.open({str(self.made())!r}, passphrase={PHRASE!r})
disk.pwrite(b"0123456789", 0)
for closes in (True, False):
    if os.fork() == 0:
        assert disk.pread(10, 0) == b"0123456789"
        if closes:
            disk.close()
        raise SystemExit
    assert os.wait()[1] == 0
assert disk.pread(10, 0) == b"0123456789"
disk.close()
"""
        said = subprocess.run([sys.executable, "-W", "ignore", "-c", text], capture_output=True, timeout=120)
        self.assertEqual((said.returncode, said.stderr), (0, b""))

    def test_socket_at_a_path_is_private_and_goes_with_the_server(self):
        path = self.folder / "nbd.sock"
        disk = cryptline.open(self.made(), passphrase=PHRASE)
        self.addCleanup(disk.close)
        for mask in (0, 0o777):
            before = os.umask(mask)
            try:
                server = cryptline.serve(disk, socket=path)
            finally:
                os.umask(before)
            with self.subTest(mask), server:
                self.assertEqual(stat.S_IMODE(path.lstat().st_mode), 0o600)
            self.assertFalse(path.exists())
        # What somebody else has put there by now stays; so does what was there before.
        with cryptline.serve(disk, socket=path):
            path.unlink()
            path.write_text("precious")
        self.assertRaises(OSError, cryptline.serve, disk, socket=path)
        self.assertEqual(path.read_text(), "precious")
        path.unlink()
        self.assertRaises(cryptline.Error, cryptline.serve, disk, socket=path, name="x" * 5000)
        self.assertFalse(path.exists())

    def test_what_cannot_be_served_is_refused_and_leaves_nothing_open(self):
        path = self.made()
        with self.assertRaises(cryptline.Error), socket.socket() as not_listening:
            cryptline.serve(path, passphrase=PHRASE, socket=not_listening)
        cryptline.open(path, passphrase=PHRASE).close()


class Stopped(WithFolder):
    """A process that is stopped and goes on, as by job control or a debugger that attaches: a socket with a timeout then
    says that it was interrupted, though there is no handler (signal(7))."""

    # What comes out of it is printed, and must be what comes out of a quiet run.
    WORK = """
import hashlib, io, os, subprocess, sys, cryptline
target, phrase, scratch, nbdcopy = sys.argv[1:]
data = hashlib.shake_256(b"work").digest(1 << 20)
found = hashlib.sha256()

def use(disk):
    for at in range(0, len(data), 100_003):
        disk.pwrite(data[at:at + 100_003], at + 5)
    disk.flush()
    for at in range(0, len(data), 70_001):
        found.update(disk.pread(min(70_001, len(data) - at), at + 5))

with cryptline.open(target, passphrase=phrase) as disk:
    use(disk)
    with cryptline.serve(disk) as server:
        for _ in range(5):
            subprocess.run([nbdcopy, server.uri, scratch], check=True)
            with open(scratch, "rb") as copy:
                found.update(copy.read(1 << 20))
        subprocess.run([nbdcopy, "--flush", scratch, server.uri], check=True)
    os.unlink(scratch)

medium = io.BytesIO(bytes(20 << 20))
cryptline.create(medium, passphrase=phrase, kdf="pbkdf2", iterations=1000).close()
with cryptline.open(medium, passphrase=phrase) as disk:
    use(disk)
cryptline.create(scratch, 20 << 20, passphrase=phrase, kdf="pbkdf2", iterations=1000).close()
with cryptline.open(scratch, passphrase=phrase) as disk:
    use(disk)
print(found.hexdigest())
"""

    def work(self, target, name, interval=None):
        words = [sys.executable, "-c", self.WORK, str(target), PHRASE, str(self.folder / name), program("nbdcopy")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            # One that has ended is not waited for meanwhile, so its number stays its own.
            stops = 0
            while interval and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                os.kill(process.pid, signal.SIGSTOP)
                time.sleep(interval)
                os.kill(process.pid, signal.SIGCONT)
                time.sleep(interval)
                stops += 1
            said = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(bool(interval), stops > 1)
        return said

    def test_program_does_what_it_does_though_it_is_stopped_and_goes_on(self):
        image, below = self.image(), self.folder / "below"
        quiet = self.work(image, "quiet")
        self.assertEqual(self.work(image, "file", interval=0.005), quiet)
        words = [program("nbdkit"), "--foreground", "--exit-with-parent", "--filter=delay", "--unix", below, "file", image,
                 "delay-open=100ms", "delay-read=1ms", "delay-write=1ms"]
        with subprocess.Popen(words) as server:
            try:
                while not listens(below):
                    self.assertIsNone(server.poll())
                    time.sleep(0.01)
                self.assertEqual(self.work(f"nbd+unix:///?socket={below}", "server", interval=0.005), quiet)
            finally:
                server.terminate()


class Documentation(WithFolder):
    def test_examples_run_as_they_are_written(self):
        root = pathlib.Path(__file__).parents[2]
        text = (root / "docs/python.md").read_text()
        found = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(found), 0)
        examples = [compile(example, "docs/python.md", "exec") for example in found]
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        cryptline.create("disk.img", 24 * MIB, passphrase="secret", **CHEAP).close()
        pathlib.Path("whole-disk.img").write_bytes(bytes(MIB) + pathlib.Path("disk.img").read_bytes() + bytes(MIB))
        layout = f"label: gpt\nstart=2048, size={24 * 2048}\n"
        subprocess.run([program("sfdisk"), "-q", "whole-disk.img"], input=layout.encode(), check=True)
        names = {}
        for example in examples:
            exec(example, names)


if __name__ == "__main__":
    unittest.main()
