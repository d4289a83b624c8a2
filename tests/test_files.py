from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import DataError
from earmark.files import folder_aside, opened, read_table, read_text, write_table, write_text, writing, writing_folder

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


def table(folder: Path, data: str | bytes) -> Path:
    path = folder / "t.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def cells(path: Path, **how: str) -> list[dict[str, str]]:
    _, rows, problems = read_table(path, **how)
    assert problems == []
    return [row.cells for row in rows]


@pytest.mark.case("C02")
def test_a_mark_and_a_quoted_header_with_a_comma_shift_nothing(tmp_path: Path) -> None:
    path = table(tmp_path, '\ufeff"last, first",age\n"Doe, J",3\n')
    columns, rows, _ = read_table(path, ["age"])
    assert columns == ["last, first", "age"]
    assert rows[0].cells == {"last, first": "Doe, J", "age": "3"}
    utf16 = table(tmp_path, "a,b\n1,2\n".encode("utf-16"))
    assert cells(utf16, encoding="utf-16") == [{"a": "1", "b": "2"}]


@pytest.mark.case("C03")
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_the_separator_is_found_in_the_header(tmp_path: Path, mark: str) -> None:
    path = table(tmp_path, f'id{mark}text\r\n1{mark}"rain; then, wind\tand hail"\r\n')
    assert cells(path) == [{"id": "1", "text": "rain; then, wind\tand hail"}]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_first_line_that_tells_spreadsheets_the_separator_is_no_header(tmp_path: Path, mark: str) -> None:
    (tmp_path / "a.csv").write_bytes(f"sep={mark}\r\na{mark}b\r\n1{mark}2\r\n".encode())
    assert read_table(tmp_path / "a.csv") == (["a", "b"], [(3, {"a": "1", "b": "2"})], [])


@pytest.mark.case("C03")
def test_another_separator_is_told_with_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.csv line 1: no column 'text'; found 'id\|text'"):
        read_table(table(tmp_path, "id|text\n1|rain\n"), ["text"])


@pytest.mark.case("C04")
def test_breaks_and_quotes_within_a_caption(tmp_path: Path) -> None:
    path = table(tmp_path, 'id,text\r\n1,"a\r\nb"\r\n2,"say ""hi"""\r\n3,6" nails\r\n4,end\r\n')
    _, rows, problems = read_table(path)
    assert [row.cells["text"] for row in rows] == ["a\r\nb", 'say "hi"', '6" nails', "end"]
    assert [row.line for row in rows] == [2, 4, 5, 6]
    assert problems == []


@pytest.mark.case("C04")
@pytest.mark.parametrize("bad", ['2,"never closed', '2,"a "word" within"', "2,one,too many", "2"])
def test_a_row_that_cannot_be_read_costs_that_row_only(tmp_path: Path, bad: str) -> None:
    path = table(tmp_path, f"id,text\n1,a\n{bad}\n3,c\n4,d\n")
    _, rows, problems = read_table(path)
    assert [row.cells["text"] for row in rows] == ["a", "c", "d"]
    assert [problem.where for problem in problems] == [f"{path} line 3"]
    assert problems[0].what.endswith("The row is left out.")


@pytest.mark.case("C10")
def test_another_encoding_is_named_with_its_line_or_read_when_told(tmp_path: Path) -> None:
    path = table(tmp_path, "id,text\r\n1,rain\r\n2,Bär\r\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"line 3: byte 0xe4 is not utf-8\. Name the file's encoding \(--encoding"):
        read_table(path, encoding="utf-8")
    with pytest.raises(DataError, match=r"line 3: byte 0xe4 is not utf-8\. Save it as UTF-8\.$"):
        read_table(path)  # of a command that has no such option
    assert cells(path, encoding="cp1252") == [{"id": "1", "text": "rain"}, {"id": "2", "text": "Bär"}]
    with pytest.raises(DataError, match=r"Name the file's encoding \(--encoding utf-16, say\)"):
        read_table(table(tmp_path, "id,text\n1,rain\n".encode("utf-16")), encoding="utf-8")
    with pytest.raises(DataError, match="'klingon' is not known"):
        read_text(path, "klingon")
    with pytest.raises(DataError, match="is not utf-16"):
        read_text(table(tmp_path, b"\xff\xfea"), "utf-16")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("", "empty"),
        (" \n\n", "empty"),
        ("a,a\n", "'a' stands twice"),
        ('"never closed\n1\n', "cannot be read as CSV"),
    ],
)
def test_a_table_without_a_header_is_refused(tmp_path: Path, data: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        read_table(table(tmp_path, data))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv: cannot be read \(No such file or directory\)"):
        read_table(tmp_path / "none.csv")


@given(rows=st.lists(st.tuples(TEXT, TEXT).filter(lambda row: any(cell.strip() for cell in row)), max_size=5))
def test_any_text_is_read_back_as_it_was_written(
    rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    written = [{"a;b": first, "c": second} for first, second in rows]
    write_table(path, ["a;b", "c"], written)
    assert cells(path) == written


def test_one_column_with_blanks_is_read_back_as_rows_that_hold_something(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_table(path, ["a"], [{"a": "x"}, {"a": "y"}])
    assert path.read_bytes() == b"a\nx\ny\n"


def test_what_utf8_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.csv line 3: holds a name that is not UTF-8"):
        write_table(tmp_path / "t.csv", ["a"], [{"a": "x"}, {"a": os.fsdecode(b"\xff.wav")}])
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail() -> None:
        with writing(path) as aside:
            aside.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot be written \(Not a directory|File exists"):
        write_text(tmp_path / "file" / "a.txt", "x")


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "new"

    def fill(fail: bool) -> None:
        with writing_folder(place) as aside:
            write_text(aside / "a", "x")
            assert not place.exists()
            if fail:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        fill(True)
    assert list(tmp_path.iterdir()) == []
    fill(False)
    assert [path.name for path in place.iterdir()] == ["a"]
    with pytest.raises(DataError, match="is there already"):
        fill(False)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("write", [writing, writing_folder, folder_aside])
def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path, write) -> None:
    code = f"""
import sys, time
from pathlib import Path
from earmark.files import write_text, {write.__name__}
with {write.__name__}(Path(sys.argv[1])) as aside:
    write_text(aside / "a", "x") if aside.is_dir() else aside.write_text("x")
    print(aside, flush=True)
    time.sleep(60)
"""
    made = []
    for name in ("new", "new", "other"):
        running = subprocess.Popen([sys.executable, "-c", code, tmp_path / name], stdout=subprocess.PIPE, text=True)
        made.append((running, Path(running.stdout.readline().strip())))
    try:
        for place in (0, 2):
            made[place][0].kill()
            made[place][0].wait()
        for _, aside in made:
            os.utime(aside, (0, 0))
        with write(tmp_path / "new") as aside:
            left = [each.exists() for _, each in made]
            assert left == [False, True, True]  # removed; at work still; of another name
    finally:
        for running, _ in made:
            running.kill()
            running.wait()
            running.stdout.close()


def test_a_secret_is_at_no_moment_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, replace = [], Path.replace

    def watched(self: Path, to: Path) -> Path:
        seen.append(stat.S_IMODE(self.stat().st_mode))
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", watched)
    write_text(tmp_path / "token", "secret", mode=0o600)
    assert seen == [0o600]


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8", "utf_8"])
def test_a_mark_is_no_part_of_the_text_whatever_encoding_is_named(tmp_path: Path, name: str) -> None:
    path = table(tmp_path, "\ufeffa,b\n1,2\n".encode(name))
    assert cells(path, encoding=name) == [{"a": "1", "b": "2"}]


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"pipe\.csv: not a regular file; expected a file"):
        read_table(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="a folder; expected a file"):
        opened(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        opened(tmp_path / "nowhere")


def test_what_a_shell_hands_over_is_read() -> None:
    reading, writing_end = os.pipe()
    os.write(writing_end, b"a\n1\n")
    os.close(writing_end)
    assert read_text(Path(f"/dev/fd/{reading}")) == "a\n1\n"
    os.close(reading)
