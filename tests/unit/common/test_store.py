"""Files are whole or not there, what is kept between runs, and what a digest of sources covers."""

import json
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilewright.common import store


def test_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "/y")
    assert store.cache_folder() == Path("/y")
    monkeypatch.setenv("TILEWRIGHT_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert store.cache_folder() == Path("/x/tilewright")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert store.cache_folder() == Path("/home/somebody/.cache/tilewright")


def test_digest(tmp_path: Path) -> None:
    """The digest follows every source below the patterns, and nothing else."""
    (tmp_path / "isa" / "sub").mkdir(parents=True)
    (tmp_path / "isa" / "a.py").write_text("1")

    def digests() -> tuple[str, str]:
        return store.sources_digest("isa/*", root=tmp_path), store.sources_digest("isa/**/*", root=tmp_path)

    flat, deep = digests()
    (tmp_path / "isa" / "a.pyc").write_text("1")
    (tmp_path / "hw.py").write_text("1")
    assert digests() == (flat, deep)
    for name in ("a.cpp", "a.h"):
        (tmp_path / "isa" / "sub" / name).write_text("1")
        assert digests()[0] == flat and digests()[1] != deep
        deep = digests()[1]
    (tmp_path / "isa" / "a.py").write_text("2")
    assert digests()[0] != flat and digests()[1] != deep
    flat = digests()[0]
    (tmp_path / "isa" / "a.py").rename(tmp_path / "isa" / "b.py")
    assert digests()[0] != flat


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestWriting:
    def test_new_and_old_files(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        store.write_atomically(path, "äb")
        assert path.read_bytes() == "äb".encode()
        (tmp_path / "plain").touch()
        assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
        path.chmod(0o640)
        store.write_atomically(str(path), b"new")
        assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o640
        assert names(tmp_path) == ["a.txt", "plain"]

    def test_the_longest_names(self, tmp_path: Path) -> None:
        path = tmp_path / ("n" * 255)
        store.write_atomically(path, b"1")
        assert path.read_bytes() == b"1"

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_a_failure_leaves_the_old_content(self, tmp_path: Path, error: BaseException) -> None:
        path = tmp_path / "a"
        path.write_bytes(b"old")
        for target in (path, tmp_path / "new"):
            with pytest.raises(type(error)), store.writing(target) as file:
                file.write(b"half")
                raise error
        assert names(tmp_path) == ["a"] and path.read_bytes() == b"old"

    def test_a_full_disk(self, tmp_path: Path) -> None:
        """The last bytes leave for the disk when the file is closed; that it takes only 1000 shows then."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                store.write_atomically(tmp_path / "a", bytes(5000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert names(tmp_path) == []

    def test_folders(self, tmp_path: Path) -> None:
        for path, error in ((tmp_path, IsADirectoryError), (tmp_path / "no" / "a", FileNotFoundError)):
            with pytest.raises(error):
                store.write_atomically(path, b"1")
        assert names(tmp_path) == []

    def test_links_stay(self, tmp_path: Path) -> None:
        (tmp_path / "far").mkdir()
        (tmp_path / "far" / "file").write_bytes(b"old")
        (tmp_path / "link").symlink_to("second")
        (tmp_path / "second").symlink_to(Path("far") / "file")
        (tmp_path / "dangling").symlink_to("far/new")
        (tmp_path / "round").symlink_to("round")
        for name in ("link", "dangling"):
            store.write_atomically(tmp_path / name, name)
            assert (tmp_path / name).is_symlink() and (tmp_path / name).read_text() == name
        assert names(tmp_path / "far") == ["file", "new"]
        with pytest.raises(OSError):
            store.write_atomically(tmp_path / "round", b"1")

    def test_fifos(self, tmp_path: Path) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        with ThreadPoolExecutor(1) as pool:
            read = pool.submit(fifo.read_bytes)
            with store.writing(fifo) as file:
                file.write(b"later")
                file.seek(0)  # as a writer of .npz does
                file.write(b"L")
            assert read.result(30) == b"Later"
        assert stat.S_ISFIFO(fifo.stat().st_mode) and names(tmp_path) == ["fifo"]

    def test_devices(self, tmp_path: Path) -> None:
        before = os.stat("/dev/null")
        store.write_atomically("/dev/null", b"gone")
        (tmp_path / "link").symlink_to("/dev/null")
        store.write_atomically(tmp_path / "link", b"gone")
        after = os.stat("/dev/null")
        assert stat.S_ISCHR(after.st_mode) and (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)
        with pytest.raises(OSError, match="No space left"):
            store.write_atomically("/dev/full", b"1")

    def test_descriptors(self, tmp_path: Path) -> None:
        """A descriptor of a file, such as /dev/stdout, keeps what was written before, and what comes after."""
        with open(tmp_path / "out", "ab") as out:
            out.write(b"1")
            out.flush()
            store.write_atomically(f"/dev/fd/{out.fileno()}", b"2")
            out.write(b"3")
        assert (tmp_path / "out").read_bytes() == b"123"

    @pytest.mark.medium
    def test_writers_at_once(self, tmp_path: Path) -> None:
        """A reader finds one of the contents, whole, at any time."""
        path, stop = tmp_path / "a", threading.Event()
        contents = {bytes([n]) * 100_000 for n in range(4)}
        store.write_atomically(path, bytes(100_000))

        def write(content: bytes) -> None:
            for _ in range(20):
                store.write_atomically(path, content)

        def read() -> set[bytes]:
            found = set()
            while not stop.is_set():
                found.add(path.read_bytes())
            return found

        with ThreadPoolExecutor(5) as pool:
            reader = pool.submit(read)
            for writer in [pool.submit(write, content) for content in contents]:
                writer.result(60)
            stop.set()
            assert reader.result(60) <= contents
        assert names(tmp_path) == ["a"]


class TestKeeping:
    def test_sealed(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "a"
        assert store.find_sealed(path) is None
        store.keep_sealed(path, b"content")
        assert store.find_sealed(path) == b"content"
        raw = path.read_bytes()
        for damaged in (b"", raw[:-1], raw[:20], raw[:-1] + b"x"):
            path.write_bytes(damaged)
            assert store.find_sealed(path) is None

    def test_no_place_is_no_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        store.keep(tmp_path / "file" / "a", "1")
        assert names(tmp_path) == ["file"]

    def test_oldest_go_first(self, tmp_path: Path) -> None:
        for i in range(8):
            store.keep(tmp_path / "00" / f"{i}.o", bytes(100))
            os.utime(tmp_path / "00" / f"{i}.o", (1000 + i, 1000 + i))
        (tmp_path / "other").write_bytes(bytes(1000))
        store.trim(tmp_path, "*/*", 800)
        assert len(names(tmp_path / "00")) == 8
        store.trim(tmp_path, "*/*", 799)
        assert names(tmp_path / "00") == [f"{i}.o" for i in range(3, 8)] and (tmp_path / "other").exists()


def test_records(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    store.append_records(path, 3, [])
    assert not path.exists()
    store.append_records(path, 3, [{"a": 1}, {"b": [2]}])
    assert path.read_text() == '{"version":3,"a":1}\n{"version":3,"b":[2]}\n'
    with path.open("a") as file:
        file.write("\n".join(["no json", "", "[]", "{}", "3", json.dumps({"version": 2, "a": 1})]) + "\n")
    store.append_records(path, 3, [{"c": 3}])
    assert list(store.read_records(path, 3)) == [{"a": 1}, {"b": [2]}, None, None, None, None, None, {"c": 3}]


@pytest.mark.parametrize("kind", ["FIFO", "socket", "device", "directory"])
def test_what_is_no_regular_file_is_not_opened(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "FIFO":
            os.mkfifo(path)
        elif kind == "socket":
            listening.bind(str(path))
        elif kind == "directory":
            path.mkdir()
        else:
            path = Path("/dev/zero")
        with pytest.raises(
            OSError, match="is a directory|directory" if kind == "directory" else f"is a {kind}"
        ) as found:
            store.read(path)
        assert str(path) in str(found.value)


def test_a_pipe_that_was_given_is_read() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    assert store.read(f"/dev/fd/{reader}") == b"text"
    os.close(reader)


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("TILEWRIGHT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = tmp_path / f"tilewright-{os.getuid()}"
    assert store.cache_folder() == store.cache_folder() == mine / "cache"
    assert mine.stat().st_mode & 0o077 == 0
    mine.chmod(0o777)  # others may have put something in: it is not used, and nothing is kept
    assert not store.cache_folder().is_relative_to(tmp_path)
    store.keep(store.cache_folder() / "x", b"y")
    assert not store.cache_folder().exists()


def test_temporary_folders_and_files_of_a_process_that_ends(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from tilewright.common import store, temporary
folder = temporary.Folder(dir=sys.argv[1])
(Path(folder.name) / "file").write_bytes(b"x")
with temporary.Folder(dir=sys.argv[1]), store.writing(Path(sys.argv[1]) / "result") as file:
    file.write(b"half")
    temporary.remove_all()
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert not list(tmp_path.iterdir())
