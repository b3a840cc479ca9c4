"""Python functions of tensors as compiled programs: ``jit``, ``train_step``, transformations."""
