"""weft.fft: discrete Fourier transforms, with torch's names and signatures."""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.eager.functions.fourier": (
        "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift "
        "ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft rfft2 rfftfreq rfftn"
    ),
}
load_names_lazily(__name__, NAMES)
