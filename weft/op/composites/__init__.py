"""Functions of the catalogue that several surfaces build from operators, each defined once.

A composite takes an ``Emitter`` and values, and applies operators by name. Front ends run it over
typed expressions (``terms.py``), ``weft.nn`` and the functions of tensors over tensors
(``weft.eager.emitter``). A surface adds names, defaults and the order of attributes.
"""
