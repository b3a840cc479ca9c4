"""Chat templates run in a sandbox: no attributes of Python, no loops without end."""

from __future__ import annotations

import pytest

from weft.generation.text import ChatTemplate
from weft.support.errors import InvalidInputError, InvalidModelError

MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def test_a_template_writes_messages() -> None:
    template = ChatTemplate(
        "{% for m in messages %}\n{{ bos_token + m['role'] }}:{{ m.content | tojson }};\n"
        "{% if loop.last %}{% break %}{% endif %}\n{% endfor %}", {"bos_token": "<s>"})
    assert template.render(MESSAGES) == '<s>user:"a";\n<s>assistant:"b";\n'


@pytest.mark.parametrize(("source", "message"), [
    ("{% for m in messages %}", "not a template"),
    ("{{ messages.__class__.__mro__ }}", "the chat template failed"),
    ("{{ ''.__class__ }}{{ ().__class__.__bases__[0].__subclasses__() }}", "template failed"),
    ("{{ messages.append(1) }}", "the chat template failed"),
    ("{% for i in range(10**9) %}{% endfor %}", "loops too often"),
    ("{% for i in range(9**4) %}{% for j in range(9**4) %}{% endfor %}{% endfor %}",
     "loops too often"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "the chat template failed"),
    ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
    ("{{ 1 // 0 }}", "ZeroDivisionError"),
])
def test_templates_that_fail(source: str, message: str) -> None:
    with pytest.raises((InvalidInputError, InvalidModelError), match=message):
        ChatTemplate(source, {}).render(MESSAGES)
