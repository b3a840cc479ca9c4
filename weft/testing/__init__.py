"""What tests of weft and of users stand on: an emulator of NVIDIA GPUs (``cuda``)."""
