"""Kernel calls in machine code, with the clock read between them."""

from __future__ import annotations

import ctypes

import pytest

from weft.codegen import CPU_BACKEND
from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.target_machine import data_layout
from weft.runtime.devices.cpu.stepper import FORMS, TimedSteps
from weft.target import CpuTarget


def _sums(counts: list[int]) -> str:
    """Functions ``sum<n>`` that store the sum of n - 1 integers to the address in the last."""
    host = CpuTarget.host()
    text = [f'target datalayout = "{data_layout(host)}"', f'target triple = "{host.triple}"']
    for count in counts:
        head = ", ".join([*(f"i64 %a{i}" for i in range(count - 1)), "ptr %to"])
        adds = [f"  %s{i + 1} = add i64 %s{i}, %a{i}" for i in range(count - 1)]
        adds[0] = "  %s1 = add i64 0, %a0"
        body = "\n".join(adds)
        text.append(f"define void @sum{count}({head}) nounwind {{\n{body}\n"
                    f"  store i64 %s{count - 1}, ptr %to\n  ret void\n}}")
    return "\n".join(text)


@pytest.mark.parametrize("orders", [[2], [2, 5, 9, 17, 33, 64], [64, 2, 32, 8, 8, 3]])
def test_every_call_gets_its_arguments(orders: list[int]) -> None:
    host = CpuTarget.host()
    code = build_text("sums", _sums(sorted(set(orders))), host).object
    library = CPU_BACKEND.load([*CPU_BACKEND.support_objects(host), code], host)
    results = [ctypes.c_int64(-1) for _ in orders]
    arguments = [[*range(n, 2 * n - 1), ctypes.addressof(result)]
                 for n, result in zip(orders, results, strict=True)]
    times = TimedSteps(library, [library.address(f"sum{n}") for n in orders], arguments).run()
    assert [r.value for r in results] == [sum(range(n, 2 * n - 1)) for n in orders]
    assert len(times) == len(orders) + 1
    assert times == sorted(times)


def test_too_many_arguments_are_left_to_python() -> None:
    assert TimedSteps.takes([[0] * FORMS[-1]])
    assert not TimedSteps.takes([[0] * (FORMS[-1] + 1)])
