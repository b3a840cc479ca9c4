"""The names of Needle, the framework of CMU's course 10-714, over weft's tensors and layers.

``Tensor``, ``Op`` and the operators record what made a tensor (``op``, ``inputs``,
``cached_data``); ``NDArray`` is Needle's array of strides. ``init``, ``optim``, ``data`` and the
modules of ``nn``, ``recurrent`` and ``transformer`` have Needle's arguments and draws.
"""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.compat.needle": "data init nn optim recurrent transformer",
    "weft.compat.needle.autograd": (
        "Op TensorOp TensorTuple TensorTupleOp compute_gradient_of_variables find_topo_sort "
        "sum_node_list"
    ),
    "weft.compat.needle.ndarray": (
        "BackendDevice NDArray all_devices array cpu cpu_numpy cuda default_device "
        "set_default_device"
    ),
    "weft.compat.needle.ops": (
        "AddScalar BroadcastTo Conv2d Dilate DivScalar EWiseAdd EWiseDiv EWiseMul EWisePow Exp "
        "Flip LogSoftmax LogSumExp Log MakeTensorTuple MatMul MulScalar Negate PowerScalar ReLU "
        "Reshape Split Stack Summation Tanh Tensor Transpose TupleGetItem UnDilate Value add "
        "add_scalar "
        "broadcast_to conv dilate divide divide_scalar exp flip log logsoftmax logsumexp "
        "make_tuple matmul mul_scalar multiply negate power power_scalar relu reshape split stack "
        "summation tanh transpose tuple_get_item undilate"
    ),
}
load_names_lazily(__name__, NAMES)
