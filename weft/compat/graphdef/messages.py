"""The protobuf messages of a GraphDef, declared from the public format.

Field names and numbers are those of ``tensorflow/core/framework/*.proto``; fields that weft does
not read are left out, which protobuf allows. They are made in a pool of their own, so TensorFlow
may be imported in the same process.
"""

from __future__ import annotations

import functools
from typing import Any

from weft.support.errors import UnsupportedModelError

_TYPES = {"double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9,
          "bytes": 12, "uint32": 13, "fixed32": 7}
_ENUM, _MESSAGE = 14, 11
_ONE, _MANY = 1, 3
_PACKAGE = "tensorflow"

# DataType: name -> number; a reference type (``DT_FLOAT_REF``) has the number plus 100.
DATA_TYPES = {
    "DT_INVALID": 0, "DT_FLOAT": 1, "DT_DOUBLE": 2, "DT_INT32": 3, "DT_UINT8": 4, "DT_INT16": 5,
    "DT_INT8": 6, "DT_STRING": 7, "DT_COMPLEX64": 8, "DT_INT64": 9, "DT_BOOL": 10, "DT_QINT8": 11,
    "DT_QUINT8": 12, "DT_QINT32": 13, "DT_BFLOAT16": 14, "DT_QINT16": 15, "DT_QUINT16": 16,
    "DT_UINT16": 17, "DT_COMPLEX128": 18, "DT_HALF": 19, "DT_RESOURCE": 20, "DT_VARIANT": 21,
    "DT_UINT32": 22, "DT_UINT64": 23, "DT_FLOAT8_E5M2": 24, "DT_FLOAT8_E4M3FN": 25,
    "DT_INT4": 29, "DT_UINT4": 30,
}
REFERENCE = 100

# Message -> "type name = number" of each field; "*" repeats, "map" maps strings to the type.
_MESSAGES = {
    "Dim": "int64 size=1, string name=2",
    "TensorShapeProto": "*Dim dim=2, bool unknown_rank=3",
    "TensorProto": "DataType dtype=1, TensorShapeProto tensor_shape=2, int32 version_number=3, "
                   "bytes tensor_content=4, *int32 half_val=13, *float float_val=5, "
                   "*double double_val=6, *int32 int_val=7, *bytes string_val=8, "
                   "*float scomplex_val=9, *int64 int64_val=10, *bool bool_val=11, "
                   "*double dcomplex_val=12, *uint32 uint32_val=16, *uint64 uint64_val=17, "
                   "bytes float8_val=18",
    "ListValue": "*bytes s=2, *int64 i=3, *float f=4, *bool b=5, *DataType type=6, "
                 "*TensorShapeProto shape=7, *TensorProto tensor=8, *NameAttrList func=9",
    "AttrValue": "bytes s=2 ?, int64 i=3 ?, float f=4 ?, bool b=5 ?, DataType type=6 ?, "
                 "TensorShapeProto shape=7 ?, TensorProto tensor=8 ?, ListValue list=1 ?, "
                 "NameAttrList func=10 ?, string placeholder=9 ?",
    "NameAttrList": "string name=1, map AttrValue attr=2",
    "DebugInfo": "*string original_node_names=1, *string original_func_names=2",
    "NodeDef": "string name=1, string op=2, *string input=3, string device=4, "
               "map AttrValue attr=5, DebugInfo experimental_debug_info=6",
    "VersionDef": "int32 producer=1, int32 min_consumer=2, *int32 bad_consumers=3",
    "ArgDef": "string name=1, string description=2, DataType type=3, string type_attr=4, "
              "string number_attr=5, string type_list_attr=6, bool is_ref=16",
    "AttrDef": "string name=1, string type=2, AttrValue default_value=3, string description=4, "
               "bool has_minimum=5, int64 minimum=6, AttrValue allowed_values=7",
    "OpDef": "string name=1, *ArgDef input_arg=2, *ArgDef output_arg=3, *string control_output=20, "
             "*AttrDef attr=4, string summary=5, string description=6, bool is_commutative=18, "
             "bool is_aggregate=16, bool is_stateful=17, bool allows_uninitialized_input=19",
    "FunctionDef": "OpDef signature=1, map AttrValue attr=5, *NodeDef node_def=3, "
                   "map string ret=4, map string control_ret=6",
    "GradientDef": "string function_name=1, string gradient_func=2",
    "FunctionDefLibrary": "*FunctionDef function=1, *GradientDef gradient=2",
    "GraphDef": "*NodeDef node=1, int32 version=3, VersionDef versions=4, "
                "FunctionDefLibrary library=2",
    # tensorflow/core/protobuf/{saved_model,meta_graph,saver,tensor_bundle}.proto
    "MetaInfoDef": "*string tags=4",
    "SaverDef": "string filename_tensor_name=1, string save_tensor_name=2, "
                "string restore_op_name=3",
    "TensorInfo": "string name=1, DataType dtype=2, TensorShapeProto tensor_shape=3",
    "SignatureDef": "map TensorInfo inputs=1, map TensorInfo outputs=2, string method_name=3",
    "MetaGraphDef": "MetaInfoDef meta_info_def=1, GraphDef graph_def=2, SaverDef saver_def=3, "
                    "map SignatureDef signature_def=5",
    "SavedModel": "int64 saved_model_schema_version=1, *MetaGraphDef meta_graphs=2",
    "BundleHeaderProto": "int32 num_shards=1, int32 endianness=2, VersionDef version=3",
    "BundleEntryProto": "DataType dtype=1, TensorShapeProto shape=2, int32 shard_id=3, "
                        "int64 offset=4, int64 size=5, fixed32 crc32c=6, *bytes slices=7",
}


@functools.cache
def message_class(name: str) -> Any:
    """The class of a message of the table."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def graph_message() -> Any:
    """The class of the message ``GraphDef``; ``UnsupportedModelError`` without protobuf."""
    _pool()
    return message_class("GraphDef")


@functools.cache
def _pool() -> Any:
    """The messages; ``UnsupportedModelError`` without protobuf."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
    except ImportError:
        raise UnsupportedModelError("GraphDef files need the package protobuf",
                                    help='pip install "weft[graphdef]"') from None
    file = descriptor_pb2.FileDescriptorProto(name="weft/graphdef.proto", package=_PACKAGE,
                                              syntax="proto3")
    enum = file.enum_type.add(name="DataType")
    for name, number in DATA_TYPES.items():
        enum.value.add(name=name, number=number)
    for name, number in DATA_TYPES.items():
        if number:
            enum.value.add(name=f"{name}_REF", number=number + REFERENCE)
    for name, fields in _MESSAGES.items():
        _declare(file.message_type.add(name=name), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _declare(message: Any, fields: str) -> None:
    """Add the fields of one line of the table; ``?`` marks the alternatives of a value."""
    for text in fields.split(","):
        words = text.replace("=", " ").split()
        is_alternative = words[-1] == "?"
        *kind, name, number = words[:-1] if is_alternative else words
        is_map, repeated = kind[0] == "map", kind[0].startswith("*")
        if is_map:
            entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
            entry.options.map_entry = True
            _add_field(entry, "key", 1, "string", _ONE)
            _add_field(entry, "value", 2, kind[1], _ONE)
            field = message.field.add(name=name, number=int(number), label=_MANY, type=_MESSAGE)
            field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
            continue
        field = _add_field(message, name, int(number), kind[0].lstrip("*"),
                           _MANY if repeated else _ONE)
        if is_alternative:
            if not message.oneof_decl:
                message.oneof_decl.add(name="value")
            field.oneof_index = 0


def _add_field(message: Any, name: str, number: int, kind: str, label: int) -> Any:
    field = message.field.add(name=name, number=number, label=label)
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type = _ENUM if kind == "DataType" else _MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    return field
