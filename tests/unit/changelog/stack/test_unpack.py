import io
import tarfile
import zipfile

import pytest

from changelog.contract.base.errors import StackError
from changelog.stack.download.unpack import copy_tree, unpack


def tar_of(path, *members):
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_a_zip_is_unpacked_with_its_empty_directories_and_executables(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.mkdir("top/empty")
        tool = zipfile.ZipInfo("top/bin/tool")
        tool.external_attr = 0o755 << 16
        archive.writestr(tool, "run")
        archive.writestr("top/plain", "text")
    target = unpack(tmp_path / "a.zip", tmp_path / "out")
    assert (target / "top/empty").is_dir()
    assert (target / "top/bin/tool").stat().st_mode & 0o111
    assert not (target / "top/plain").stat().st_mode & 0o111


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_a_name_that_leads_out_is_refused_and_nothing_stays(tmp_path, name):
    archive = tar_of(
        tmp_path / "a.tar.gz", (tarfile.TarInfo("good"), b"1"), (tarfile.TarInfo(name), b"2")
    )
    with pytest.raises(StackError, match="leads out"):
        unpack(archive, tmp_path / "in" / "out")
    assert list((tmp_path / "in").iterdir()) == []


def test_a_tar_inside_a_zip_is_unpacked_with_links_between_neighbours(tmp_path):
    link = tarfile.TarInfo("lib/it.so")
    link.type, link.linkname = tarfile.SYMTYPE, "it.so.1"
    inner = tar_of(tmp_path / "i.txz", (link, b""), (tarfile.TarInfo("lib/it.so.1"), b"code"))
    with zipfile.ZipFile(tmp_path / "a.jar", "w") as archive:
        archive.write(inner, "i.txz")
        archive.writestr("META-INF/other", "")
    target = unpack(tmp_path / "a.jar", tmp_path / "out", inner="i.txz")
    assert (target / "lib/it.so").read_bytes() == b"code"
    assert [path.name for path in target.iterdir()] == ["lib"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("place", ["/etc/passwd", "../x", "..", "a/b"])
def test_a_link_to_anything_else_is_refused(tmp_path, kind, place):
    link = tarfile.TarInfo("link")
    link.type, link.linkname = kind, place
    with pytest.raises(StackError, match="no plain file"):
        unpack(tar_of(tmp_path / "a.tar.gz", (link, b"")), tmp_path / "out")


def test_a_target_that_is_there_is_not_unpacked_again(tmp_path):
    (tmp_path / "out").mkdir()
    assert unpack(tmp_path / "missing.zip", tmp_path / "out") == tmp_path / "out"


def test_a_copied_tree_is_readable_by_all(tmp_path):
    source = tmp_path / "source"
    (source / "bin").mkdir(parents=True, mode=0o700)
    tool = source / "bin" / "tool"
    tool.touch(mode=0o700)
    target = copy_tree(source, tmp_path / "target")
    assert (target / "bin").stat().st_mode & 0o777 == 0o755
    assert (target / "bin" / "tool").stat().st_mode & 0o777 == 0o755
