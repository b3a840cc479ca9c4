"""The order of the passes from a scheduled loop nest to CUDA kernels."""

from __future__ import annotations

from weft.tir.transform.check_local import check_local
from weft.tir.transform.flatten_buffer import flatten_buffer
from weft.tir.transform.gpu.bind_unbound import bind_unbound
from weft.tir.transform.gpu.cross_thread_reduce import cross_thread_reduce
from weft.tir.transform.gpu.merge_guards import merge_guards
from weft.tir.transform.gpu.peel_vector_guards import peel_vector_guards
from weft.tir.transform.gpu.plan_device_memory import plan_device_memory
from weft.tir.transform.gpu.plan_shared import plan_shared
from weft.tir.transform.gpu.thread_sync import thread_sync
from weft.tir.transform.gpu.unify_threads import unify_threads
from weft.tir.transform.gpu.unroll_registers import unroll_registers
from weft.tir.transform.lower_intrinsics import lower_intrinsics
from weft.tir.transform.registered import TirPass
from weft.tir.transform.remove_no_op import remove_no_op
from weft.tir.transform.separate_registers import separate_registers
from weft.tir.transform.simplify import simplify
from weft.tir.transform.tensorize_loop import tensorize_loop
from weft.tir.transform.unroll_loop import unroll_loop
from weft.tir.transform.vectorize_loop import vectorize_loop

CUDA_PIPELINE: tuple[TirPass, ...] = (
    bind_unbound,        # every nest has blocks and threads from here on
    unify_threads,       # the code of one thread, in which the threads of a block work together
    cross_thread_reduce,
    plan_shared,         # before barriers: buffers that share bytes need them
    thread_sync,
    merge_guards,        # conditions that stood between barriers
    simplify,            # indices and guards under the ranges of blocks and threads
    tensorize_loop,
    peel_vector_guards,  # a thread has no masked accesses
    unroll_registers,    # a thread cannot index its registers
    vectorize_loop,      # vectors of a thread: wide loads and stores
    unroll_loop,         # makes register indices constant
    separate_registers,
    lower_intrinsics,    # polynomials: the GPU has no library of functions
    check_local,         # decides which local buffers are registers and which memory
    plan_device_memory,  # needs to know which locals became memory
    flatten_buffer,
    remove_no_op,
)  # fmt: skip
