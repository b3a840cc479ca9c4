"""From a model to an executable: the pipeline, the kernel builds, the memory plan."""
