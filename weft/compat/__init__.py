"""Interfaces of weft's ancestors over the same programs; the core imports none of them.

``graph`` and ``graphdef`` are TensorFlow's graphs, sessions and files, ``symbol`` NNVM's symbols,
``optimizer`` the passes over a graph that run to a fixed point, ``needle``
the layers of Needle.
"""

from weft.support.lazy_package import load_names_lazily

load_names_lazily(__name__, {})
