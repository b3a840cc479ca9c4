"""Interfaces of weft's ancestors over the same programs; the core imports none of them.

``graph`` and ``graphdef`` are TensorFlow's graphs, sessions and files, ``symbol`` NNVM's symbols,
``optimizer`` the passes over a graph that run to a fixed point, ``needle``
the layers of Needle.
"""
