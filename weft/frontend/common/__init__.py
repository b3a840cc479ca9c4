"""What all front ends share: nodes, tables of converters, coverage reports, typed expressions."""
