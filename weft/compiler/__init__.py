"""From a model to a module that runs: the one pipeline, the kernel builds, the memory plan."""
