"""torch's names of layouts and memory formats, which functions accept and which change nothing."""

strided = "strided"
contiguous_format = "contiguous_format"
preserve_format = "preserve_format"
channels_last = "channels_last"
channels_last_3d = "channels_last_3d"
