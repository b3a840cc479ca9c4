"""Programs for WebAssembly, run in a sandbox."""
