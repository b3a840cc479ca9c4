"""The command line: thin verbs over ``weft.compile`` and its relatives."""
