"""The commands of language models: the reply alone on standard output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import weft
from tests.unit.cli.commands import run
from tests.unit.generation.text.model_files import write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"))


def test_generate_writes_the_reply_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(["generate", folder, "--prompt", "Hi there", "--max-tokens", 12], capsys)
    assert (code, out) == (0, weft.models.load(folder).generate("Hi there", max_tokens=12) + "\n")
    assert "12 tokens" in err
    assert "tokens/s" in err


def test_generate_keeps_the_prompt_and_replies_in_a_form(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "form").write_text("[0-9]{4}", encoding="utf-8")
    cache = tmp_path / "cache"
    line = ["generate", folder, "--prompt", "Hi there", "--regex", tmp_path / "form",
            "--cache", cache]
    code, out, _ = run(line, capsys)
    assert code == 0
    assert out[:-1].isdecimal()
    written = cache.stat().st_mtime_ns
    assert run(line, capsys)[1] == out
    assert cache.stat().st_mtime_ns == written


def test_chat_answers_each_line_and_forgets(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = iter(["Hello", "x" * 40, "y" * 40, ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    code, out, err = run(["chat", folder, "--max-tokens", 5], capsys)
    assert code == 0
    assert len(out.split("\n")) >= 4
    assert err.count("tokens") >= 3


def test_ctrl_c_ends_a_reply(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    lines = iter(["Hello", "Hello", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    monkeypatch.setattr("weft.models.compiled_decoder.CompiledDecoder.prefill", interrupted)
    code, _, err = run(["chat", folder, "--max-tokens", 5], capsys)
    assert code == 0
    assert err.count("(interrupted)") == 2


def test_embed_and_perplexity_print_numbers(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "text").write_text("some text", encoding="utf-8")
    code, out, _ = run(["perplexity", folder, tmp_path / "text"], capsys)
    assert (code, float(out) > 1) == (0, True)
    code, out, _ = run(["embed", folder, "a", "b"], capsys)
    vectors = [json.loads(line) for line in out.splitlines()]
    assert [len(vector) for vector in vectors] == [32, 32]
    assert run(["generate", tmp_path, "--prompt", "a"], capsys)[0] == 1
