"""What commands say where files cannot be written or read, and how weft's own mistakes end."""

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.unit.cli.commands import run
from weft.cli.output import write_npz

PROGRAM = "def @main(%x: Tensor[(4,), float32]) { tanh(%x) }"
NOWHERE = "/proc/there/is/no/such/folder"


@pytest.fixture
def program(tmp_path, own_cache):
    path = tmp_path / "net.ir"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("arguments", [
    ["run", "-o"], ["opt", "-o"], ["profile", "--repeat", "1", "--trace"], ["inspect", "--html"],
    ["compile", "-o"],
])
def test_an_output_that_cannot_be_written_is_code_1(arguments, program, capsys):
    verb, *options = arguments
    code, _, err = run([verb, program, *options, NOWHERE], capsys)
    assert code == 1
    assert NOWHERE in err
    assert "Traceback" not in err


def test_a_folder_is_no_place_for_an_artifact(program, capsys):
    code, _, err = run(["compile", program, "-o", "."], capsys)
    assert code == 1
    assert "Is a directory" in err


@pytest.mark.parametrize("path", [".", "/", ""])
def test_a_folder_is_no_model(path, capsys):
    code, _, err = run(["compile", path], capsys)
    assert code == 1
    assert "folder" in err


@pytest.mark.parametrize("shape", ["4", "x:2,4", ":4"])
def test_a_shape_in_another_form_is_wrong_use(shape, program, capsys):
    code, _, err = run(["run", program, "--input-shape", shape], capsys)
    assert code == 2
    assert "is not NAME:SHAPE, such as data:1x3x224x224" in err


@pytest.mark.parametrize("content", [b"", b"PK\3\4 and no more", b"text"])
def test_damaged_inputs_are_code_1(content, program, capsys, tmp_path):
    (tmp_path / "x.npz").write_bytes(content)
    code, _, err = run(["run", program, "--inputs", tmp_path / "x.npz"], capsys)
    assert code == 1
    assert "cannot be read" in err


def test_one_array_has_no_name(program, capsys, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(4, np.float32))
    code, _, err = run(["run", program, "--inputs", tmp_path / "x.npy"], capsys)
    assert code == 1
    assert "without a name" in err


def test_arrays_are_written_under_any_name_to_exactly_that_file(tmp_path):
    write_npz(tmp_path / "y", {"file": np.arange(3), "a/b:0": np.float32(2)})
    with np.load(tmp_path / "y") as found:
        assert found["file"].tolist() == [0, 1, 2]
        assert found["a/b:0"] == 2


@pytest.mark.usefixtures("own_cache")
def test_bfloat16_comes_back_from_a_file(capsys, tmp_path):
    program = tmp_path / "double.ir"
    program.write_text("def @main(%x: Tensor[(2,), bfloat16]) { add(%x, %x) }")
    np.savez(tmp_path / "x.npz", x=np.array([1, 2], ml_dtypes.bfloat16))
    code, out, _ = run(["run", program, "--inputs", tmp_path / "x.npz"], capsys)
    assert code == 0
    assert "min 2 mean 3 max 4" in out


def test_opt_wants_text(capsys, tmp_path):
    (tmp_path / "net.ir").write_bytes(b"\xff\xfe\0")
    code, _, err = run(["opt", tmp_path / "net.ir"], capsys)
    assert code == 1
    assert "UTF-8" in err


def test_an_onnx_file_named_as_text_is_refused_cached_or_not(program, capsys, tmp_path):
    onnx_named = tmp_path / "net.onnx"
    assert run(["compile", program, "-o", tmp_path / "net.weft"], capsys)[0] == 0
    onnx_named.write_bytes(program.read_bytes())
    assert run(["inspect", onnx_named], capsys)[0] == 1


def test_a_mistake_of_wefts_own_is_code_70(program, capsys, monkeypatch):
    def broken(*_, **__):
        raise KeyError("x")

    monkeypatch.setattr(weft, "compile", broken)
    code, _, err = run(["inspect", program], capsys)
    assert code == 70
    assert "KeyError" in err
    assert "bug in weft" in err


def test_a_pass_that_does_not_exist_is_not_printed_in_silence(program, capsys, monkeypatch):
    monkeypatch.setenv("WEFT_PRINT_AFTER", "fuse_op")
    code, _, err = run(["inspect", program], capsys)
    assert code == 2
    assert "did you mean 'fuse_ops'" in err


def test_an_unwritable_dump_folder_is_a_bad_setting(program, capsys, monkeypatch):
    monkeypatch.setenv("WEFT_DUMP_DIR", NOWHERE)
    code, _, err = run(["inspect", program], capsys)
    assert code == 2
    assert "WEFT_DUMP_DIR" in err


def test_explanations_come_from_passes_not_from_the_cache(program, capsys, monkeypatch):
    program.write_text("def @main(%x: Tensor[(4,), float32]) { nn.relu(nn.relu(%x)) }")
    assert run(["inspect", program], capsys)[0] == 0
    monkeypatch.setenv("WEFT_EXPLAIN", "all")
    assert "applied 1" in run(["inspect", program], capsys)[2]


def test_names_that_nothing_has_are_refused(program, capsys, monkeypatch):
    monkeypatch.setenv("WEFT_EXPLAIN", "double_negatio")
    code, _, err = run(["inspect", program], capsys)
    assert code == 2
    assert "WEFT_EXPLAIN" in err
    assert "did you mean 'double_negation'?" in err


@pytest.mark.parametrize(("passes", "words"), [
    ("fold_constan", ("unknown pass", "did you mean 'fold_constant'")),
    ("fuse_ops{max_dept=8}", ("unknown option 'max_dept'", "max_depth")),
    ("fuse_ops{max_depth=x}", ("'max_depth'", "expected: int", "got: 'x'")),
    ("fuse_ops{max_depth=8", ("syntax error", "name{option=value")),
    ("fold_constant fuse_ops", ("syntax error", "separated by commas")),
])
def test_pipelines_that_mean_nothing_are_refused(passes, words, program, capsys):
    code, _, err = run(["opt", program, "-p", passes], capsys)
    assert code in (1, 2)
    assert all(word in err for word in words)


def test_the_choice_of_an_implementation_is_explained(program, capsys, monkeypatch):
    program.write_text("def @main(%x: Tensor[(32, 64), float32], %w: Tensor[(48, 64), float32]) "
                       "{ nn.dense(%x, %w) }")
    assert run(["inspect", program], capsys)[0] == 0
    monkeypatch.setenv("WEFT_EXPLAIN", "nn.dense")
    assert "// implementation of nn.dense(Tensor[(32, 64)" in run(["inspect", program], capsys)[2]
