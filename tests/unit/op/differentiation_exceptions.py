"""Cases whose derivatives are not compared with differences, and arguments held constant.

``test_differentiation.py`` fails for a listed case that can be proved, so that no line outlives its
reason.
"""

from __future__ import annotations

from fnmatch import fnmatch

# Derivatives that differ from the slope on purpose, or points without a derivative.
UNPROVED: dict[str, str] = {
    "annotation.stop_gradient-[01]": "a constant for differentiation, by definition",
    "linalg.cholesky-3": "the matrix is not positive definite, so the factor is not one",
    "linalg.lu-3": "the matrix is singular, so a solve with its factors fails",
    "qnn.simulated_quantize-*": "straight-through: the slope of a step is 0",
    "special.zeta-1": "includes poles",
}

# Operators that have a derivative but no rule.
MISSING: dict[str, str] = {
    "special.incomplete_gamma-[014]": "there is no kernel of the derivative in the first argument",
    "special.zeta-0": "there is no kernel of the derivative in the first argument",
}

# Arguments that the gradient treats as constants although the result depends on them.
CONSTANT: dict[str, tuple[str, ...]] = dict.fromkeys(
    # As in torchvision: a region holds the number of an image, and its corners are not learned.
    ("vision.roi_align", "vision.roi_align_grad", "vision.roi_align_tangent"), ("rois",))


def reason_for(case: str) -> str | None:
    """Why a case (``operator-number``) is not proved; ``None`` for one that must be."""
    listed = UNPROVED | MISSING
    return next((why for pattern, why in listed.items() if fnmatch(case, pattern)), None)
