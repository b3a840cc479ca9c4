"""Normal forms of functions, and passes that reach them."""
