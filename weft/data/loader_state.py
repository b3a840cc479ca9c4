"""The state of a data loader: what it is, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.support.errors import DataError

FORMAT = 1
_SETTINGS = ("batch_size", "drop_last", "shuffle", "samples")


def state_of(loader: Any, epoch: int, batch: int) -> dict[str, int | None]:
    """The position of a loader, and the settings that give it its meaning."""
    return {"format": FORMAT, "epoch": epoch, "batch": batch, "seed": loader.seed,
            **_settings(loader)}


def check_state(loader: Any, state: Mapping[str, Any]) -> None:
    """Raise ``DataError`` unless ``state`` is one of a loader like this one."""
    missing = {"format", "epoch", "batch", "seed", *_SETTINGS} - set(state)
    if missing:
        raise DataError("the state of a data loader is incomplete",
                        expected=sorted(missing), got=sorted(state))
    if state["format"] != FORMAT:
        raise DataError("the state of a data loader has an unknown format",
                        expected=FORMAT, got=state["format"])
    for name, value in _settings(loader).items():
        if state[name] != value:
            raise DataError(f"the state is of a data loader with another {name}",
                            expected=value, got=state[name])


def _settings(loader: Any) -> dict[str, int | None]:
    sized = hasattr(loader.dataset, "__len__")
    return {"batch_size": loader.batch_size, "drop_last": int(loader.drop_last),
            "shuffle": int(loader._shuffle),  # noqa: SLF001 - one class in two files
            "samples": len(loader.dataset) if sized else None}
