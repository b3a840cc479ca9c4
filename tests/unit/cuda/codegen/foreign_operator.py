"""An operator whose implementations for GPUs are a PTX text and a kernel of numba."""

from __future__ import annotations

from weft import define_op, op_case, te
from weft.ir.typing.relations import same_type_as
from weft.strategy import Implementation, strategy

SQUARE_PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry square(.param .u64 square_n_out, .param .u64 square_in, .param .u32 square_n)
{
  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<5>; .reg .f32 %f<2>;
  ld.param.u64 %d1, [square_in];
  ld.param.u64 %d2, [square_n_out];
  ld.param.u32 %r5, [square_n];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p, %r4, %r5;
  @%p bra $done;
  mul.wide.u32 %d3, %r4, 4;
  add.u64 %d1, %d1, %d3;
  add.u64 %d2, %d2, %d3;
  ld.global.f32 %f1, [%d1];
  mul.f32 %f1, %f1, %f1;
  st.global.f32 [%d2], %f1;
$done:
  ret;
}
"""
THREADS = 64


@define_op("test.squared", relation=same_type_as(0))
def squared(x, attrs):
    """Each element squared."""
    return te.compute(x.shape, lambda *i: x[i] * x[i])


@squared.gradient
def squared_gradient(call, y, dy):
    return [call.args[0] * dy + call.args[0] * dy]


squared.spec(lambda x: x * x, op_case((3, 50)), op_case((130,)))


def squared_by_ptx(x, attrs):
    n = 1
    for size in x.shape:
        n = n * size
    return te.device_kernel([x.shape], [x], SQUARE_PTX, [x.dtype], scalars=[n], order=(1, 0, 2),
                            grid=(n + THREADS - 1) // THREADS, block=THREADS)[0]


@strategy("test.squared", target="cuda")
def squared_cuda(call, target):
    if str(call.args[0].checked_type.dtype) == "float32":
        yield Implementation("test.squared.cuda.ptx", compute=squared_by_ptx,
                             schedule=lambda _: None)
