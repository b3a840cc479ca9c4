"""Phases, instruments and options."""

import re

import pytest

import weft
import weft.op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import (
    PHASE_NAMES,
    PIPELINE,
    compare_modules,
    pipeline_text,
    run_pipeline,
)
from weft.ir import PASSES, infer_type, parse, parse_pipeline
from weft.support.errors import InternalError, OptionError, TargetError

PROGRAM = """
def @main(%x: Tensor[(1, 8, 6, 6), float32], %w: Tensor[(8, 8, 3, 3), float32]) {
  let %a = nn.conv2d(%x, %w, padding=(1, 1));
  let %b = nn.relu(nn.relu(%a));
  add(%b, %b)
}"""
OPTIONS = CompileOptions.make()


def module(text=PROGRAM):
    return infer_type(parse(text))


def test_every_phase_is_reached_in_order():
    texts = [str(run_pipeline(module(), OPTIONS, stop_at=name)) for name in PHASE_NAMES]
    assert "let" in texts[0]
    assert "let" not in texts[1]
    assert texts[2].count("nn.relu") == 1
    assert "primitive=True" in texts[3]


def test_an_unknown_phase_is_refused():
    with pytest.raises(OptionError, match="unknown phase"):
        run_pipeline(module(), OPTIONS, stop_at="baked")


def test_the_pipeline_prints_as_what_parses():
    for line, phase in zip(pipeline_text().splitlines(), PIPELINE, strict=True):
        assert parse_pipeline(line.partition(": ")[2]).passes == phase.passes


def test_every_pass_of_the_pipeline_is_registered():
    for phase in PIPELINE:
        for pass_ in phase.passes:
            assert PASSES.get(pass_.name) is type(pass_)


def test_no_optimisation_keeps_every_operator():
    mod = run_pipeline(module(), CompileOptions.make(opt_level=0))
    assert str(mod).count("nn.relu") == 2


def test_passes_are_printed_where_asked(capsys):
    with weft.config(print_after="fuse_ops", print_before="simplify_inference"):
        run_pipeline(module(), OPTIONS)
    err = capsys.readouterr().err
    assert re.findall(r"^// (\w+ \w+)", err, re.MULTILINE) == [
        "before simplify_inference", "after fuse_ops"]


def test_unchanged_passes_say_so_on_the_ladder(capsys):
    with weft.config(debug=6):
        run_pipeline(module(), OPTIONS)
    err = capsys.readouterr().err
    assert "canonicalize_ops: unchanged" in err or "remove_unused_functions: unchanged" in err
    assert "after phase optimized" in err


def test_passes_are_timed(capsys):
    with weft.config(time_passes=True):
        run_pipeline(module(), OPTIONS)
    assert "fuse_ops" in capsys.readouterr().err


def test_dumped_files_are_numbered(tmp_path):
    with weft.config(dump_dir=tmp_path):
        run_pipeline(module(), OPTIONS)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names[0] == "00-input.ir"
    assert any(n.endswith("-fuse_ops.ir") for n in names)
    assert [int(n[:2]) for n in names] == list(range(len(names)))


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_every_level_of_verification_passes_on_a_sound_program(level):
    with weft.config(verify=level):
        run_pipeline(module(), OPTIONS)


def test_a_pass_that_changes_the_meaning_is_caught():
    with pytest.raises(InternalError, match="changed what the program computes"):
        compare_modules(module("def @main(%x: Tensor[(4,), float32]) { exp(%x) }"),
                        module("def @main(%x: Tensor[(4,), float32]) { tanh(%x) }"))


@pytest.mark.parametrize(("arguments", "error"), [
    ({"opt_level": 4}, OptionError), ({"opt_level": True}, OptionError),
    ({"inputs": [1, 2]}, OptionError), ({"inputs": {"x": "1x3"}}, OptionError),
    ({"inputs": {"x": 3}}, OptionError), ({"target": "toaster"}, TargetError),
])
def test_options_are_checked(arguments, error):
    with pytest.raises(error):
        CompileOptions.make(**arguments)


def test_options_with_equal_keys_are_equal():
    one = CompileOptions.make(inputs={"x": [1, 3]})
    two = CompileOptions.make(inputs={"x": (1, 3)})
    assert one == two
    assert one.key_text() == two.key_text()
    assert one.key_text() != CompileOptions.make(opt_level=1).key_text()


def test_the_target_comes_from_the_configuration():
    with weft.config(target="llvm -mcpu=haswell"):
        assert CompileOptions.make().target.cpu == "haswell"
