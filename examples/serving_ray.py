"""Many replicas of a server under Ray Serve, which starts, watches and scales them.

    pip install "weft[serve]" "ray[serve]"
    python -m examples.serving_ray            starts two replicas, asks them, and stops

Each replica is a whole server of weft (``weft.serving.create_app``) with batches of its own; Ray
Serve gives requests to the one with the fewest, and starts those anew that end. Load artifacts in
``application``: a replica that compiles is ready later.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from ray import serve

PROGRAM = "def @main(%x: Tensor[(batch, 4), float32]) { nn.softmax(%x) }"


def application() -> Any:
    """The ASGI application of a replica, made in its process."""
    import weft
    from weft.serving import Catalogue, TensorModel, create_app

    module = weft.compile(weft.parse(PROGRAM))  # or weft.load("model.weft")
    return create_app(Catalogue([TensorModel("softmax", module)]))


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 1})
@serve.ingress(application)
class Weft:
    """A replica; Ray Serve asks ``check_health`` now and then."""

    def check_health(self) -> None:
        """Answering is enough."""


def main() -> None:
    serve.run(Weft.bind(), route_prefix="/")
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0.0, 0.0, 0.0, 0.0]}
    request = urllib.request.Request("http://127.0.0.1:8000/v2/models/softmax/infer",
                                     json.dumps({"inputs": [tensor]}).encode())
    with urllib.request.urlopen(request, timeout=30) as response:
        print(json.load(response)["outputs"])
    serve.shutdown()


if __name__ == "__main__":
    main()
