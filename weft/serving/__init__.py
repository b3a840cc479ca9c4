"""Models behind HTTP: the Open Inference Protocol, and OpenAI's interface for language models.

The modules that speak HTTP (``app``, ``server``, ``*_routes``) need the extra ``weft[serve]`` and
are imported when they are used; what schedules the work needs none of it.
"""

from weft.serving.batcher import Batcher
from weft.serving.catalogue import Catalogue
from weft.serving.limits import Limits
from weft.serving.open import create_app, serve
from weft.serving.refusal import RefusedError
from weft.serving.tensor_model import TensorModel, TensorModule
from weft.serving.text_model import TextModel
from weft.serving.text_scheduler import TextScheduler

__all__ = ["Batcher", "Catalogue", "Limits", "RefusedError", "TensorModel", "TensorModule",
           "TextModel", "TextScheduler", "create_app", "serve"]
