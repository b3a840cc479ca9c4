"""weft.masked: functions over the elements where a mask holds, with torch's names."""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.eager.functions.masked": (
        "amax amin argmax argmin cumprod cumsum log_softmax logaddexp logsumexp mean median norm "
        "normalize prod softmax softmin std sum var"
    ),
}
load_names_lazily(__name__, NAMES)
