"""docs/pytorch.md: its programs run."""

from __future__ import annotations

import re

import pytest

from tests.docs.coverage_page import ROOT

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
TEXT = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("own_cache")
def test_the_programs_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = "".join(re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
    # The entry point is there once weft is installed with it.
    if "weft" not in torch._dynamo.list_backends():
        code = code.replace('backend="weft"', "backend=weft.torch_backend")
    names: dict[str, object] = {}
    exec(compile(code, "docs/pytorch.md", "exec"), names)
    assert capsys.readouterr().out == "Counter({'aten.linalg_ldl_factor_ex.default': 1})\n"
    assert (tmp_path / "net.weft").is_file()
    assert (tmp_path / "net32.weft").is_file()
    torch.testing.assert_close(torch.from_numpy(names["y"]), names["net"](names["x"]))
