"""Writers of operators as StableHLO operations, by family."""
