"""The text form: lexer, parser, printer."""
