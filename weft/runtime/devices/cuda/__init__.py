"""NVIDIA GPUs: kernel images, the driver, and an emulated driver."""
